"""From a dataset to a model: features, learners, evidence, the library's own choice."""
