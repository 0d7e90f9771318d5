"""The validation stage: how well a model chooses on unseen problems."""
