"""The active stage: choice of the training pairs to measure."""
