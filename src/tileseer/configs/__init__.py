"""The configs stage: which kernels are candidates, and the chunks that they are dealt to."""
