"""Convolutions: operations, problems, their implicit GEMM, layers of networks."""
