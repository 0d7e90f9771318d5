"""Settings of the configs and problems stages: which kernels are candidates for which problems."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tileseer.core.strict_tables import distinct, expected
from tileseer.facts.operations import RULE_SETS
from tileseer.facts.section import Section, SourcePath

RuleSet = Annotated[
    Literal[RULE_SETS] | SourcePath,  # type: ignore[valid-type]
    expected(f"the relative path of a table, or one of {', '.join(RULE_SETS)}"),
]


class ConfigsSettings(Section):
    """Which kernels are candidates."""

    rule_set: RuleSet = "config/rule_sets/sweep.yaml"
    """Which kernels exist: the path of a table of tiles, pipelines and options, or the name of a set of the reference.
    ``profiler`` and ``tests`` need ``ck.root``, a checkout of Composable Kernel."""
    include_flagged: list[str] = Field(["half_zero_output"])
    """Flags of defective kernels that are built anyway; ``all`` for every flag. The kernels of ``half_zero_output`` are
    wrong for some shapes: a device that checks results bars those that turn out so."""
    ndims: Annotated[list[Annotated[int, Field(ge=2, le=3)]], AfterValidator(distinct)] = Field([2, 3], min_length=1)
    """Dimensionalities of the convolutions that one operation covers."""
    chunks: int = Field(1, ge=1, le=4096)
    """Chunks of the kernels of an operation: one chunk is one job of each kernel stage. Another number divides all
    kernels anew. With more than a hundred, the graph of jobs costs more than the jobs save."""


class ProblemsSettings(Section):
    """Problems for training and for validation; layers of one network family are on one side only."""

    networks: SourcePath = "config/problems/layers.csv"
    """Table of the layers of real networks with their splits; the design fills the space of its train split."""
    design: int = Field(1200, ge=0)
    """Training problems per operation, drawn from the space of the networks in the train split."""
    training_layers: int = Field(1000, ge=0)
    """Layers of the train split that are used for training, spread over its network families."""
    training: list[SourcePath] = Field([])
    """Further training problems: generator files (.yaml) and tables of layers (.csv), for example of your network."""
    validation: SourcePath = "config/problems/layers.csv"
    """Table of layers, whose test split is for validation; a table without splits is all test. They are never used for
    training."""
    validation_problems: int = Field(800, ge=0)
    """Largest number of validation problems, from whole runs of networks; with fewer than three eighths of it the
    workflow stops. 0: all problems of the table, however few."""
    seed: int = Field(20261121, ge=0)
    """Seed of the drawn problems."""

    @property
    def min_validation(self) -> int:
        """Fewest problems that a figure of the model may rest on."""
        return max(1, self.validation_problems * 3 // 8)
