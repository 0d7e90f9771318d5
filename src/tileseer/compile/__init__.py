"""The compile stage: toolchains, builds, aliases, libraries, and what machine code says."""
