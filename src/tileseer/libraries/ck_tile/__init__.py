"""CK Tile: grouped convolutions of Composable Kernel, for AMD GPUs."""
