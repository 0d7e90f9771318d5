"""The library ``miopen``: the solvers that MIOpen chooses among, as its databases of measured times name them.

There is nothing to emit, to compile or to simulate: the family has no parts for that.
"""
