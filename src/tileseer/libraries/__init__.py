"""What a kernel is. One folder a library: ``ck_tile``, ``cutlass``, ``miopen``, ``cudnn``; ``libraries`` finds it."""
