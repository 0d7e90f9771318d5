"""The active stage: which training pairs are worth measuring."""
