"""The serving stage: what a dispatcher runs of a trained model."""
