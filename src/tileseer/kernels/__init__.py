"""What a kernel is: names, enumeration, legality and C++ text of each library's kernels.

One folder a library: ``ck_tile``, ``cutlass``, ``miopen``, ``cudnn``; ``registry`` finds the one of an arch or a name.
"""
