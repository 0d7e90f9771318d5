"""The configuration: ``config/config.yaml``, checked and typed, one module a section."""
