"""A GPU whose kernels' machine code is executed on the CPU: to check results, never to time them.

The device is CDNA 2 to 4 (gfx90a, gfx942, gfx950); numpy computes the 64 lanes of a wave at once. ``docs/emulated.md``
says what is executed and how.
"""
