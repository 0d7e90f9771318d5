"""The report: one HTML page of what training and validation gave, complete in itself."""
