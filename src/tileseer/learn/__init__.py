"""From a dataset to a model: features, learners, evidence, the library's own choice."""

# Says in which module a name is that is looked for here.
from tileseer import __getattr__ as __getattr__
