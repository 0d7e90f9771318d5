"""Features of (problem, candidate) pairs: one module a feature set."""
