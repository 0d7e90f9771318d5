"""What every library's emitter offers: the C++ files of kernels, from templates."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import jinja2

from tileseer.core.templates import cpp_environment, mistakes_named

LACK = ".lack"
"""Suffix of a bundle's file for a kernel that has no header: it says why."""
ONE_SLICE = ".one_slice"
"""Suffix of a bundle's file for a kernel that refuses every split-K above 1: it says why."""


class Emitter(ABC):
    """Fills a library's C++ templates in; one object serves any number of kernels and archs."""

    folder: ClassVar[str] = ""
    """Of its templates, below workflow/templates."""
    pattern: ClassVar[str]
    """Of their names."""
    header_suffix: ClassVar[str]
    """Of the file of an emitted kernel."""
    source_suffix: ClassVar[str]
    """Of the sources that the library's compiler takes."""
    launcher: ClassVar[str]
    """Header of workflow/native that launches a kernel."""
    registration: ClassVar[str]
    """C++ line that registers a kernel; ``{name}``, ``{variant}``, ``{ndim}`` and ``{dtype}`` are filled in."""
    level: str = ""
    """Of the library's API; empty if it has one alone."""

    def __init__(self, templates: Path, api: Path, level: str = "") -> None:
        """Read ``templates`` (workflow/templates) and ``api`` (config/ck_api.yaml) for an API ``level``.

        An empty level is the newest.
        """
        self._where = templates / self.folder
        self._environment = cpp_environment(self._where)

    @classmethod
    def template_files(cls, templates: Path) -> list[Path]:
        """Return the templates that emitted text depends on, sorted."""
        return sorted((templates / cls.folder).glob(cls.pattern))

    @classmethod
    def header_file(cls, kernel: Any) -> str:
        """Return the file name of a kernel's header."""
        return f"{kernel.name}{cls.header_suffix}"

    @classmethod
    def registration_source(cls, kernels: Sequence[Any]) -> str:
        """Return the C++ source that registers kernels, in their order."""
        includes = [*map(cls.header_file, kernels), cls.launcher]
        lines = (
            cls.registration.format(name=k.name, variant=k.variant.upper(), ndim=k.ndim, dtype=k.dtype.upper())
            for k in kernels
        )
        return "".join(f'#include "{path}"\n' for path in includes) + "\n" + "".join(f"{line}\n" for line in lines)

    @staticmethod
    @abstractmethod
    def entries(names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]:
        """Return how a dispatcher finds each kernel: name, files and registry key."""

    @abstractmethod
    def paths(self, kernel: Any) -> list[str]:
        """Return the names of a kernel's files."""

    @abstractmethod
    def kernel_files(self, kernel: Any, arch: str) -> dict[str, str]:
        """Return path to text of a kernel's files."""

    @abstractmethod
    def collection_files(self, kernels: Sequence[Any], arch: str) -> dict[str, str]:
        """Return path to text of the files that name many kernels, for users' own builds."""

    @staticmethod
    def device_source(kernels: Sequence[Any], headers: Sequence[str]) -> str:
        """Return C++ that instantiates kernel I with a type ``probe_I::Probe``, for a compiler's device pass."""
        raise NotImplementedError

    @property
    def levels(self) -> list[tuple[str, str, str]]:
        """How a tree shows its level of the API: level, header and words in it, the newest first."""
        return []

    def lack(self, kernel: Any, arch: str) -> str:
        """Return why the API level has no form for a kernel, or an empty string."""
        return ""

    def only_one_slice(self, kernel: Any) -> str:
        """Return why a kernel refuses every split-K above 1, or an empty string."""
        return ""

    def files(self, kernels: Sequence[Any], arch: str) -> dict[str, str]:
        """Return path to text of all kernels' files.

        ``KERNEL.lack`` has the reason where there is no form for a kernel, ``KERNEL.one_slice`` where it refuses every
        split-K above 1.
        """
        texts: dict[str, str] = {}
        for kernel in kernels:
            if reason := self.only_one_slice(kernel):
                texts[f"{kernel.name}{ONE_SLICE}"] = f"{reason}\n"
            lack = self.lack(kernel, arch)
            texts |= {f"{kernel.name}{LACK}": f"{lack}\n"} if lack else self.kernel_files(kernel, arch)
        return dict(sorted(texts.items()))

    def _template(self, name: str) -> jinja2.Template:
        with mistakes_named(self._where / name):
            return self._environment.get_template(name)

    def _render(self, template: str, **context: object) -> str:
        with mistakes_named(self._where / template):
            return self._template(template).render(context)
