"""The publish stage: the model directory, its provenance, its RO-Crate."""
