"""Settings of the configs and problems stages: which kernels are candidates for which problems."""

from typing import Annotated, Literal

from pydantic import Field

from tileseer.config.rule_set_names import RULE_SETS
from tileseer.config.section import Section, SourcePath

RuleSet = Literal[RULE_SETS] | SourcePath  # type: ignore[valid-type]


class ConfigsSettings(Section):
    """Which kernels are candidates."""

    rule_set: RuleSet = "config/rule_sets/sweep.yaml"
    """Which kernels there are: the path of a table of tiles, pipelines and options, or a set of the reference by its
    name; ``profiler`` and ``tests`` need ``ck.root``, a checkout of Composable Kernel."""
    include_flagged: list[str] = Field([])
    """Flags of kernels with a known defect that are built all the same; ``all`` for every flag."""
    filter: str = Field("")
    """Expression over the fields of a kernel; those that it keeps are candidates, for example
    ``tile_m >= 64 and pipeline in (mem, compv3)``. Empty: all."""
    ndims: list[Annotated[int, Field(ge=2, le=3)]] = Field([2, 3], min_length=1)
    """Dimensionalities of the convolutions that one operation covers."""
    chunks: int = Field(2, ge=1, le=4096)
    """Hash buckets an operation: one bucket is one job of each kernel stage. Changing it re-deals all kernels.
    With more than a hundred the graph of jobs costs more than the jobs save."""


class ProblemsSettings(Section):
    """What is trained on and what it is judged on; layers of one network family are on one side only."""

    networks: SourcePath = "config/problems/layers.csv"
    """Table of the layers of real networks with their splits; the design fills the space of its train split."""
    design: int = Field(700, ge=0)
    """Training problems that fill the space which the networks of the train split span, for each operation."""
    training_layers: int = Field(500, ge=0)
    """Layers of the train split that are trained on, dealt over its network families."""
    training: list[SourcePath] = Field([])
    """Further training problems: generator files (.yaml), tables of layers (.csv) for example of a user."""
    validation: SourcePath = "config/problems/layers.csv"
    """Table of layers that the model is judged on; never trained on."""
    validation_split: Literal["validation", "test"] = "test"
    """The split of that table to judge on; a table without splits is all test."""
    validation_problems: int = Field(800, ge=0)
    """Most problems to judge on, of whole runs of networks; with fewer than three eighths of them the workflow stops.
    0: all that the table has, however few."""
    filter: str = Field("")
    """Expression over the fields of a problem; those that it keeps are trained on and judged on, for example
    ``G == 1 and N <= 8``. What is drawn is drawn before. Empty: all."""
    seed: int = Field(20261121, ge=0)
    """Seed of what is drawn."""

    @property
    def min_validation(self) -> int:
        """Fewest problems that a figure of the model may rest on."""
        return max(1, self.validation_problems * 3 // 8)
