"""CUTLASS: implicit-GEMM convolutions of the CUTLASS 2.x templates, for NVIDIA GPUs."""
