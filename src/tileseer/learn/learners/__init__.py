"""Our learners: a package each, which owns all that knows how it works."""
