"""cuDNN: the plans that it offers for a convolution, an engine with its knobs each."""
