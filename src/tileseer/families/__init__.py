"""Kernel families: one folder a kernel library, and what GEMM-like kernels share."""
