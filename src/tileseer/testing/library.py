"""What every library of kernels has to keep: inherit ``LibrarySuite``, and pytest runs its tests on yours.

::

    class TestToy(LibrarySuite):
        arch, gpu = "toy_1", MY_BOARD
        kernels = ("toy_conv_fwd_bf16_2d_16x16", "toy_conv_fwd_bf16_2d_32x64")
"""

import argparse
import importlib
import pkgutil
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tileseer.facts.hardware import Hardware
from tileseer.learn.features import Features
from tileseer.libraries import registry
from tileseer.libraries.candidates import RESOURCES, with_fields
from tileseer.libraries.library import Library
from tileseer.problems.problem import Problem, problem_frame

LAYERS = (
    {"N": 4, "C": 64, "K": 64, "Hi": 28, "Wi": 28, "Y": 3, "X": 3, "pad_h": 1, "pad_w": 1},
    {"N": 1, "C": 3, "K": 64, "Hi": 56, "Wi": 56, "Y": 7, "X": 7, "stride_h": 2, "stride_w": 2},
    {"N": 2, "C": 32, "K": 32, "Hi": 14, "Wi": 14, "G": 32, "Y": 3, "X": 3},
)


class LibrarySuite:
    """Tests of the library of ``arch``, by some of its kernels, all of one direction and data type, on one ``gpu``."""

    arch: str
    kernels: Sequence[str]
    gpu: Hardware

    def test_it_is_found_by_its_arch_and_its_names_alone(self) -> None:
        """No other library has its name, its prefix, its pattern of archs or the name of a set of features."""
        library = self._library()
        assert registry.library_of_kernels(self.kernels) is library, "prefix: that of the kernels' names"
        for other in registry.installed():
            if other is not library:
                assert other.name != library.name and other.archs != library.archs, "name, archs: no other library's"
                assert not other.prefix.startswith(library.prefix) and not library.prefix.startswith(other.prefix)
                assert not other.features.keys() & library.features.keys()

    def test_a_name_says_the_whole_kernel(self) -> None:
        """Names are those of the kernels that they mean, and fields a table's columns."""
        parsed = registry.parse_kernels(self.kernels)
        assert [kernel.name for kernel in parsed] == list(self.kernels), "kernel: the name is that which was parsed"
        assert len(set(parsed)) == len(self.kernels) == len(self._library().kernel.frame(parsed))

    def test_a_verdict_depends_on_its_pair_alone(self) -> None:
        """Rules give [P, Q] verdicts, the same for a problem and a kernel beside others and alone."""
        problems, candidates = self._pairs()
        variant = problems["variant"].iloc[0]
        verdicts = registry.check_support(problems, candidates, variant, self.gpu)
        assert verdicts.shape == (len(problems), len(candidates)), "rules: a row for each problem"
        assert verdicts.dtype == np.uint8, "rules: verdicts are numbers of rules, uint8"
        assert (verdicts == 0).any(), "none of these kernels runs an ordinary layer"
        alone = registry.check_support(problems.iloc[[1]], candidates.iloc[[0]], variant, self.gpu)
        assert alone[0, 0] == verdicts[1, 0], "rules: another verdict alone than beside others"

    def test_features_are_numbers_of_their_pair_alone(self) -> None:
        """The library's own features are finite, [pairs, features], the same for a pair beside others and alone."""
        problems, candidates = self._pairs()
        features, index = Features.of(self._library().feature_set, self.gpu), np.arange(len(problems))
        matrix = features.matrix(problems, candidates, index, 0 * index)
        assert matrix.shape == (len(problems), len(features.names)) and np.isfinite(matrix).all()
        one = features.matrix(problems.iloc[[1]], candidates, index[:1], index[:1])
        np.testing.assert_array_equal(one[0], matrix[1], "features: other numbers alone than beside others")

    def test_what_it_brings_to_other_rooms_is_there(self) -> None:
        """Doors name objects that can be imported; importers and exporters are commands."""
        library = self._library()
        assert all(pkgutil.resolve_name(door) for door in (library.plans, library.device) if door)
        assert bool(library.device) == bool(library.program), "device, program: one needs the other"
        for name in (*library.importers.values(), *library.exporters.values()):
            command = importlib.import_module(name)
            command.configure(argparse.ArgumentParser())
            assert command.SUMMARY and command.EXAMPLES and callable(command.run), f"{name}: SUMMARY, EXAMPLES, run"

    def test_kernels_that_are_made_here_have_text_and_resources(self) -> None:
        """An emitter, a sweep, an estimate and a cost come together."""
        library = self._library()
        parts = (library.emitter, library.sweep, library.estimate, library.cost)
        assert len({part is None for part in parts}) == 1, "emitter, sweep, estimate, cost: all of them or none"
        if library.emitter is not None:
            lines = library.emitter.registration_source(registry.parse_kernels(self.kernels))
            assert all(name in lines for name in self.kernels), "registration_source: it names each kernel"

    def _library(self) -> Library:
        return registry.library_of_arch(self.arch)

    def _pairs(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return P problems of the kernels' operation and the Q candidates without split-K."""
        candidates = with_fields(pd.DataFrame({"kernel": list(self.kernels), "split_k": 1}))
        candidates = candidates.assign(**dict.fromkeys(RESOURCES, 1.0))
        variant, dtype = candidates["variant"].iloc[0], candidates["dtype"].iloc[0]
        return problem_frame([Problem.from_dims(variant, dtype, **layer) for layer in LAYERS]), candidates
