"""What ships: picks in Python and C++, kernel sets, the published folder, selection and comparison."""

# Says in which module a name is that is looked for here.
from tileseer import __getattr__ as __getattr__
