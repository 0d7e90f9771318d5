"""Files that are written whole, errors, Parquet and JSON files, templates, locks, the stage store.

It knows nothing of convolutions, kernels or GPUs.
"""
