"""MIOpen: the solvers that it chooses among, as its databases of measured times name them."""
