"""The published model directory: the names of its files.

::

    MODELS/index.json                                 hashes of all files, arch, operations, device kind
    MODELS/provenance.json                            what made them
    MODELS/grouped_conv_{operation}_{arch}/
        model_tflops.lgbm  feature_spec.json  train_manifest.json  cv_metrics_tflops.json
        feature_importances_tflops.json  candidates.parquet  hardware.json  validation.json
        selector.hpp  selector.npz  known_problems.parquet  kernels.json  serving.json
        resource_estimates.json  out_of_fold.parquet

No file holds a time, a host or a path, so the same models publish to the same bytes.
"""

INDEX = "index.json"
MODEL = "model_tflops.lgbm"
SPEC = "feature_spec.json"
MANIFEST = "train_manifest.json"
CV_METRICS = "cv_metrics_tflops.json"
IMPORTANCES = "feature_importances_tflops.json"
CANDIDATES = "candidates.parquet"
HARDWARE = "hardware.json"
VALIDATION = "validation.json"
OUT_OF_FOLD = "out_of_fold.parquet"
TRAINING_FILES = (MODEL, SPEC, MANIFEST, CV_METRICS, IMPORTANCES, CANDIDATES, HARDWARE, OUT_OF_FOLD)
"""What training leaves in its folder; publishing adds ``VALIDATION``."""
SELECTOR = "selector.hpp"
PICKER = "selector.npz"
"""What the header holds, as arrays that Python reads in a blink."""
KNOWN = "known_problems.parquet"
KERNELS = "kernels.json"
SERVING = "serving.json"
ESTIMATES = "resource_estimates.json"
"""Coefficients by which a kernel outside the pool gets its registers, LDS and occupancy."""
SERVING_FILES = (SELECTOR, PICKER, KNOWN, KERNELS, SERVING, ESTIMATES)
"""What the serving stage leaves in its folder."""
PROVENANCE = "provenance.json"
"""What made the models (``tileseer.serve.provenance``); a directory that was published by hand may lack it."""
