"""The report stage: one HTML page, complete in itself."""
