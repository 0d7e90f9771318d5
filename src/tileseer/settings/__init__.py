"""The sections of ``config/config.yaml``: one module a stage, so that a change reruns that stage only."""
