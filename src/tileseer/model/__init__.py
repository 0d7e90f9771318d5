"""The model stage: features, trainer, cross-validation, priors, model files."""
