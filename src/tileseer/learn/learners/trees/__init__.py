"""Gradient-boosted trees of LightGBM: the learner that ships."""

from tileseer.learn.learners.trees.fit import Trees

__all__ = ["Trees"]
