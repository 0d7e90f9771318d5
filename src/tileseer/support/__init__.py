"""The support stage: which pairs can run."""
