"""Settings of the model stage: features, target, trees and cross-validation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tileseer.settings.section import RelativePath, Section


class ModelSettings(Section):
    """How one operation's ranking model is trained."""

    features: Literal["tileseer", "compiled", "cutlass", "reference"] = "tileseer"
    """Feature set: ours (of the family whose kernels are ranked; ``compiled`` where a compiler described their code),
    or ``reference``, the 97 features of Composable Kernel's predictor, which can then load the model."""
    target: Literal["auto", "relative", "log_tflops", "lambdarank", "ensemble"] = "auto"
    """What is learnt: log(TFLOPS / best TFLOPS of the problem), log(TFLOPS), a ranking by LambdaRank, or the mean of
    the three. ``auto`` takes ``relative`` unless cross-validation on the training problems finds another one better."""
    prior: RelativePath | None = None
    """Folder of a trained model of the same direction and features (another arch, data type or device kind). What is
    trained then corrects that model, whatever ``target`` says."""
    relative_floor: float = Field(0.05, ge=0, lt=1, strict=False)
    """Relative targets below this are raised to it: how bad a bad kernel is does not matter. 0 turns it off."""
    near_best: float = Field(2.0, ge=0, strict=False)
    """Weight of a row in the relative target's regression: its relative efficiency to this power."""
    level_share: float = Field(0.1, gt=0, le=1, strict=False)
    """How much it counts what the relative target's regression misses on all rows of a problem alike; 1: as much as
    differences between its candidates, which are all that decides a pick."""
    rows_per_problem: int = Field(192, ge=0)
    """Training rows kept of each problem, 0 for all; the fastest ``top_rows`` always, the rest drawn by seed."""
    top_rows: int = Field(96, ge=0)
    """Fastest rows of each problem that sampling never drops."""
    n_estimators: int = Field(600, ge=1)
    """Trees of the published model."""
    cv_estimators: int = Field(100, ge=1)
    """Trees of each fold's model; fewer keep cross-validation cheap, and its numbers pessimistic."""
    cv_rows_per_problem: int = Field(64, ge=0)
    """Training rows of each problem in cross-validation, half of them the fastest; 0 for all that train."""
    confirm_folds: int = Field(1, ge=0)
    """Folds in which an objective or hyperparameters that cross-validation prefers have to be better with all trees
    and rows as well; 0: small models decide alone."""
    search_trials: int = Field(3, ge=0)
    """Random hyperparameters that cross-validation tries; one is taken only if it is better beyond doubt."""
    num_leaves: int = Field(63, ge=2)
    """Leaves of a tree."""
    learning_rate: float = Field(0.1, gt=0, le=1, strict=False)
    """Shrinkage of each tree."""
    min_child_samples: int = Field(20, ge=1)
    """Fewest rows in a leaf."""
    max_bin: int = Field(127, ge=2, le=255)
    """Histogram bins of a feature."""
    feature_fraction: float = Field(0.7, gt=0, le=1, strict=False)
    """Share of the features that a tree may use."""
    reg_lambda: float = Field(1.0, ge=0, strict=False)
    """L2 penalty of leaf values."""
    offset_prior: float = Field(10.0, ge=0, strict=False)
    """Rows without residual that are added when a candidate's own offset is averaged; 0 trusts every row."""
    folds: int = Field(5, ge=2)
    """Folds of the cross-validation."""
    cv_group: Literal["layer_family", "problem_key"] = "layer_family"
    """What a fold never shares: a layer at any batch size, or one exact problem."""
    seed: int = Field(1, ge=0, le=2**31 - 1)
    """Seed of row sampling, folds and trees."""
