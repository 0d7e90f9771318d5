"""The sections of ``config/config.yaml`` and the parameters that they lead to."""
