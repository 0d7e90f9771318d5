"""The reference's trainer as a baseline."""
