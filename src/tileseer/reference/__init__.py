"""The upstream generator's rule sets, names, counts, filter and features."""
