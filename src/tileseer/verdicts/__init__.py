"""Verdicts: what compiled kernels compute on tiny problems, executed on the emulated GPU. They have no times."""
