"""Predicted time of a kernel on a problem: the formula and coefficients that the cost models of libraries share."""
