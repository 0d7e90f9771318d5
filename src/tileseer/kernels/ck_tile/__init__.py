"""The library ``ck_tile``: grouped convolutions of Composable Kernel, for AMD GPUs."""
