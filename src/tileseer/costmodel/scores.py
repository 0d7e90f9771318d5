"""The unit of scores."""

UNIT = 2.0**-20
"""Scores of the cost model and leaf values of trees are whole multiples of it: sums of them are exact in any order."""
