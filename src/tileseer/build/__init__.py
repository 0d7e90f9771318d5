"""Toolchains, builds, machine code and linked libraries of kernels."""
