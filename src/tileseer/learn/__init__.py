"""From a dataset to a model: features, fit, predict; cross-validation."""
