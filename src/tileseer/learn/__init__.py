"""From a dataset to a model: features, learners, evidence, the library's own choice."""

from tileseer import __getattr__ as __getattr__
