"""GPU targets and products: the facts that kernels and devices are judged by."""
