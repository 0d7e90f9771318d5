"""Which kernels exist: validity rules and the enumeration of rule sets."""
