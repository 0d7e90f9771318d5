"""The page that shows what came out."""
