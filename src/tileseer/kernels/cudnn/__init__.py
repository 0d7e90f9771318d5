"""The library ``cudnn``: the plans that cuDNN offers for a convolution, an engine with its knobs each.

There is nothing to emit, to compile or to simulate: the family has no parts for that.
"""
