"""Toolchains: how an emitted header becomes a kernel that can run, and what it costs."""
