"""What every family's emitter offers: the C++ files of kernels, from templates."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import jinja2

from tileseer.core.templates import cpp_environment, mistakes_named
from tileseer.kernels.registry import LACK, ONE_SLICE


class Emitter(ABC):
    """Fills a family's C++ templates in; one object serves any number of kernels and archs."""

    folder: ClassVar[str] = ""
    """Of its templates, below workflow/templates."""
    pattern: ClassVar[str]
    """Of their names."""

    def __init__(self, templates: Path, api: Path, level: str = "") -> None:
        """Read ``templates`` (workflow/templates) and ``api`` (config/ck_api.yaml) for an API ``level``.

        An empty level is the newest.
        """
        self._where = templates / self.folder
        self._environment = cpp_environment(self._where)

    @classmethod
    def template_files(cls, templates: Path) -> list[Path]:
        """The templates that emitted text depends on, sorted."""
        return sorted((templates / cls.folder).glob(cls.pattern))

    @staticmethod
    @abstractmethod
    def entries(names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]:
        """How a dispatcher finds each kernel: name, files and registry key."""

    @abstractmethod
    def paths(self, kernel: Any) -> list[str]:
        """Names of a kernel's files."""

    @abstractmethod
    def kernel_files(self, kernel: Any, arch: str) -> dict[str, str]:
        """Path to text of a kernel's files."""

    @abstractmethod
    def collection_files(self, kernels: Sequence[Any], arch: str, chunk_size: int = 0) -> dict[str, str]:
        """Path to text of the files that name many kernels, for users' own builds."""

    def lack(self, kernel: Any, arch: str) -> str:
        """Why the API level has no form for a kernel, or an empty string."""
        return ""

    def only_one_slice(self, kernel: Any) -> str:
        """Why a kernel refuses every split-K above 1, or an empty string."""
        return ""

    def files(self, kernels: Sequence[Any], arch: str) -> dict[str, str]:
        """Path to text of all kernels' files; with a reason ``KERNEL.lack``, where there is no form for one, and
        ``KERNEL.one_slice``, where it refuses every split-K above 1.
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
