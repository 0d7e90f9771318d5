"""Features of (problem, candidate) pairs that libraries share, and what a set of features is."""
