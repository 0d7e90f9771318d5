"""Predicted time of a kernel on a problem: formulas, coefficients, resources.

The simulated device and the start of learning are its two users.
"""
