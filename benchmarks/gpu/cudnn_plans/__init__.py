"""Measure cuDNN's plans on every GPU of a machine: the recording that the family ``cudnn`` learns from."""
