"""The C++ text of kernels: headers, compilation units, dispatcher wrappers and their collections.

Everything is a function of kernel, arch, templates and API table. The registry's keys come from the kernel, never
from its name, and collections come from the list that is given, never from what lies in a folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tileseer.config.operations import VARIANTS
from tileseer.core.errors import UserError
from tileseer.core.templates import Leaf, Skeleton
from tileseer.kernels.ck_tile import api as ck_api
from tileseer.kernels.ck_tile import registry_key
from tileseer.kernels.ck_tile.api import CkApi
from tileseer.kernels.ck_tile.depthwise import DepthwiseConfig
from tileseer.kernels.ck_tile.kernel import KernelConfig
from tileseer.kernels.emitter import Emitter
from tileseer.kernels.gemm_kernel import SIZES, field_types

Kernel = KernelConfig | DepthwiseConfig

CHUNK_SIZE = 25
"""Kernels of one registration source unless another number is asked for: as many as one compiler run takes."""
WRAPPERS = "dispatcher_wrappers"
REGISTERED_NDIMS = (2, 3)
"""Dimensionalities that the dispatcher's backend can build a convolution for; other kernels have no wrapper."""

_ARCH = re.compile(r"gfx[0-9a-f]{3,4}", re.ASCII)
_FLAGS = (
    "double_smem_buffer", "explicit_gemm", "streamk_persistent", "split_image", "pad_m", "pad_n", "pad_k",
)  # fmt: skip
_COMMON_LEAVES = ("name", "arch")
_GEMM_LEAVES = (*SIZES, "vec_a", "vec_b", "vec_c", "num_wave_groups", "num_groups_to_merge", "blocks_per_cu")
"""What a template only prints of an implicit-GEMM kernel; its other fields make the form of its text."""
_GEMM_FORM = (*(field for field in field_types(KernelConfig) if field not in _GEMM_LEAVES), "merges_groups")
_DEPTHWISE_LEAVES = (*(field for field in field_types(DepthwiseConfig) if field != "dtype"), "pad")
UNIT_TEMPLATE, WRAPPER_TEMPLATE = "kernel.cpp.j2", "dispatcher_wrapper.hpp.j2"
_DEPTHWISE_FORM = ("variant", "dtype", "ndim", "block")


class CkTileEmitter(Emitter):
    """Header, compilation unit and dispatcher wrapper of each kernel, and the files that collect them.

    Text that a kernel has no form for raises ``UserError`` with its name; so does a broken template or table.
    """

    pattern = "*.[ch]pp.j2"

    def __init__(self, templates: Path, api: Path, level: str = "") -> None:
        super().__init__(templates, api, level)
        self._api = ck_api.load(api, level or ck_api.NEWEST)
        self._skeletons: dict[tuple[str, tuple[object, ...]], Skeleton] = {}
        if not (names := [path.name for path in self.template_files(templates)]):
            raise UserError(f"{templates}: no C++ templates ({self.pattern}) here; give the folder workflow/templates")
        for name in names:
            self._template(name)

    @staticmethod
    def entries(names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]:
        """How a dispatcher finds each kernel: header, wrapper, and the key's values as registration fills them in."""
        table = ck_api.load(api)
        return [
            {
                "kernel": name,
                "header": f"{name}.hpp",
                "wrapper": f"{WRAPPERS}/dispatcher_wrapper_{name}.hpp",
                "registry_key": registry_key.values(registry_key.of_gemm(KernelConfig.parse(name), table), arch),
            }
            for name in names
        ]

    def header(self, kernel: Kernel, arch: str) -> str:
        """The kernel's header for ``arch`` (gfx...)."""
        return self._filled(_KINDS[kernel.kind].header, kernel, _values(kernel, _checked(arch)))

    def unit(self, kernel: Kernel) -> str:
        """The compilation unit of the kernel's header."""
        return self._filled(UNIT_TEMPLATE, kernel, _values(kernel, ""))

    def wrapper(self, kernel: Kernel, arch: str) -> str:
        """The header that makes the kernel's entry in the dispatcher's registry; 2D and 3D only."""
        if not is_registered(kernel):
            raise UserError(f"{kernel.name}: the dispatcher's backend has no {kernel.ndim}D convolution to register")
        return self._filled(WRAPPER_TEMPLATE, kernel, _values(kernel, _checked(arch)))

    def paths(self, kernel: Kernel) -> list[str]:
        """The files of one kernel: header, unit and, for 2D and 3D, the dispatcher's wrapper."""
        stem = kernel.name
        wrapper = [f"{WRAPPERS}/dispatcher_wrapper_{stem}.hpp"] if is_registered(kernel) else []
        return [f"{stem}.hpp", f"{stem}.cpp", *wrapper]

    def kernel_files(self, kernel: Kernel, arch: str) -> dict[str, str]:
        """Path to text of the files of one kernel; see ``paths``."""
        values = _values(kernel, _checked(arch))
        templates = [_KINDS[kernel.kind].header, UNIT_TEMPLATE]
        if is_registered(kernel):
            templates.append(WRAPPER_TEMPLATE)
        texts = [self._filled(template, kernel, values) for template in templates]
        return dict(zip(self.paths(kernel), texts, strict=True))

    def collection_files(self, kernels: Sequence[Kernel], arch: str, chunk_size: int = 0) -> dict[str, str]:
        """The files that name many kernels: relative path to text, sorted.

        An include-all header per direction; one register-all header; for each direction that has 2D or 3D kernels,
        its registration sources of ``chunk_size`` kernels (default: ``CHUNK_SIZE``) and one source that calls them.
        """
        texts = {}
        registered = []
        has = {one for one in kernels if not self.lack(one, arch)}
        for variant in VARIANTS:
            row = self._api.variants[variant]
            own = sorted((one.name, is_registered(one)) for one in has if one.variant == variant)
            every = [stem for stem, _ in own]
            texts[f"include_all_grouped_conv_{row.short}_kernels.hpp"] = self._render(
                "include_all.hpp.j2", variant=row, names=every
            )
            wrapped = [stem for stem, has_wrapper in own if has_wrapper]
            registered.append((row, wrapped))
            texts |= self._registration_sources(row, wrapped, chunk_size or CHUNK_SIZE)
        texts[f"{WRAPPERS}/register_all_grouped_conv_kernels.hpp"] = self._render(
            "register_all.hpp.j2",
            arch=_checked(arch),
            includes=self._api.includes.registration,
            names=sorted(stem for _, wrapped in registered for stem in wrapped),
            variants=registered,
        )
        return dict(sorted(texts.items()))

    def lack(self, kernel: Kernel, arch: str) -> str:
        """Why this level of the API lacks the kernel on an arch, with the level; or an empty string."""
        lack = self._api.lack(kernel, arch)
        return f"CK Tile {self._api.level}: {lack}" if lack else ""

    def _registration_sources(self, row: ck_api.VariantRow, names: list[str], chunk_size: int) -> dict[str, str]:
        if not names:
            return {}
        chunks = [names[start : start + chunk_size] for start in range(0, len(names), chunk_size)]
        common = {"variant": row, "includes": self._api.includes.registration, "chunks": len(chunks)}
        texts = {
            f"register_{row.short}_chunk_{number}.cpp": self._render(
                "register_chunk.cpp.j2", **common, chunk=number, names=chunk
            )
            for number, chunk in enumerate(chunks)
        }
        texts[f"register_all_grouped_conv_{row.short}_kernels.cpp"] = self._render("register_variant.cpp.j2", **common)
        return texts

    def _filled(self, template: str, kernel: Kernel, values: list[str]) -> str:
        """Text of the kernel's form with the kernel's values."""
        kind = _KINDS[kernel.kind]
        key = (template, _FORM_OF[kernel.kind](kernel))
        skeleton = self._skeletons.get(key)
        if skeleton is None:
            text = self._render(template, **self._form_context(kernel, kind))
            skeleton = self._skeletons[key] = Skeleton(text, (*_COMMON_LEAVES, *kind.leaves))
        # What depends on the form alone was checked when the skeleton was made.
        fault = self._api.no_form(kernel) or kind.size_fault(kernel)
        if fault:
            raise UserError(f"{kernel.name}: {fault}")
        return skeleton.filled(values)

    def _form_context(self, kernel: Kernel, kind: _Kind) -> dict[str, object]:
        fault = form_fault(kernel, self._api)
        if fault:
            raise UserError(f"{kernel.name}: {fault}")
        shown = SimpleNamespace(**{leaf: Leaf(leaf) for leaf in kind.leaves})
        for field in kind.form:
            setattr(shown, field, getattr(kernel, field))
        return {
            **{leaf: Leaf(leaf) for leaf in _COMMON_LEAVES},
            "k": shown,
            "ndim": kernel.ndim,
            "variant": self._api.variants[kernel.variant],
            "cpp_type": self._api.dtypes[kernel.dtype],
            "registration_includes": self._api.includes.registration,
            **kind.context(kernel, shown, self._api),
        }


def is_registered(one: Kernel) -> bool:
    """Whether the kernel has an entry in the dispatcher's registry."""
    return one.ndim in REGISTERED_NDIMS


def _values(one: Kernel, arch: str) -> list[str]:
    return [one.name, arch, *map(str, _VALUES_OF[one.kind](one))]


def _depthwise_context(kernel: DepthwiseConfig, shown: Any, api: CkApi) -> dict[str, object]:
    return {
        "depthwise": api.depthwise,
        "key": registry_key.of_depthwise(shown, api),
        "includes": [*api.includes.depthwise, api.variants[kernel.variant].kernel_header],
    }


def _gemm_context(kernel: KernelConfig, shown: Any, api: CkApi) -> dict[str, object]:
    variant = api.variants[kernel.variant]
    pipeline = api.pipelines[kernel.pipeline]
    instances = api.loop == "type"
    streamk = kernel.streamk != "none"
    flags = {field: getattr(kernel, field) for field in _FLAGS}
    conv_pipeline = f"{pipeline.pipeline}<{', '.join(['PipelineProblem', *pipeline.arguments])}>"
    flags |= {"cshuffle": kernel.epilogue == "cshuffle", "streamk": streamk}
    return {
        "pipeline": pipeline,
        "layout": api.layouts[kernel.ndim],
        "scheduler": api.schedulers[kernel.scheduler],
        "specialization": api.specializations[kernel.specialization],
        "reduction": api.streamk.get(kernel.streamk),
        "config_alias": variant.streamk_config_alias if streamk else variant.config_alias,
        "instances": instances,
        "conv_pipeline": f"tileseer::{pipeline.adapter}<{conv_pipeline}>" if pipeline.adapter else conv_pipeline,
        "dispatches_tail": pipeline.tail != "fixed" and (instances or not (streamk or kernel.two_stage)),
        "flag": {field: "true" if value else "false" for field, value in flags.items()},
        "key": registry_key.of_gemm(shown, api),
        "includes": _kernel_includes(kernel, api),
    }


def _checked(arch: str) -> str:
    # The arch becomes part of C++ text.
    if not _ARCH.fullmatch(arch):
        raise UserError(f"arch {arch!r} is no GPU target of the form gfx950")
    return arch


def _kernel_includes(kernel: KernelConfig, api: CkApi) -> list[str]:
    special = api.includes.two_stage if kernel.two_stage else []
    special = api.includes.streamk if kernel.streamk != "none" else special
    return [*api.includes.kernel, api.variants[kernel.variant].kernel_header, *special]


def _fault(kernel: KernelConfig, api: CkApi) -> str:
    """Why CK Tile has no form for this kernel, or an empty string.

    Whether a kernel is worth having on an arch is for ``tileseer.kernels.ck_tile.legality``.
    """
    k = kernel
    reduces = api.variants[k.variant].reduces_into_workspace
    pipeline = api.pipelines[k.pipeline]
    if k.variant not in pipeline.variants:
        return f"the pipeline {k.pipeline} exists for {', '.join(pipeline.variants)} only, not for {k.variant}"
    if k.two_stage and not reduces:
        return f"two_stage does not exist for {k.variant}"
    if k.streamk != "none" and not reduces:
        return f"streamk does not exist for {k.variant}"
    if k.streamk != "none" and k.two_stage:
        return "streamk reduces in its own workspace and has no second stage; set one of streamk and two_stage"
    return ""


def form_fault(one: Kernel, api: CkApi) -> str:
    """Why the templates have no form for the kernel at this level of the API, or an empty string."""
    kind = _KINDS[one.kind]
    return api.no_form(one) or kind.fault(one, api) or kind.size_fault(one)


def _size_fault(k: KernelConfig) -> str:
    """Why there is no form for the kernel's numbers, or an empty string."""
    if k.explicit_gemm and k.num_groups_to_merge != 1:
        return f"explicit_gemm takes one group a block, num_groups_to_merge is {k.num_groups_to_merge}"
    if k.epilogue == "default" and k.num_wave_groups != 1:
        return f"the default epilogue has no wave groups, num_wave_groups is {k.num_wave_groups}"
    return ""


@dataclass(frozen=True)
class _Kind:
    """How kernels of a kind become text: ``leaves`` are only printed, ``form`` makes the text's form."""

    header: str
    leaves: tuple[str, ...]
    form: tuple[str, ...]
    context: Callable[[Any, Any, CkApi], dict[str, object]]
    """(kernel, its form with leaves for numbers, API) to what the templates of the kind read."""
    fault: Callable[[Any, CkApi], str] = lambda kernel, api: ""
    size_fault: Callable[[Any], str] = lambda kernel: ""


_KINDS = {
    KernelConfig.kind: _Kind("kernel.hpp.j2", _GEMM_LEAVES, _GEMM_FORM, _gemm_context, _fault, _size_fault),
    DepthwiseConfig.kind: _Kind("depthwise.hpp.j2", _DEPTHWISE_LEAVES, _DEPTHWISE_FORM, _depthwise_context),
}
_VALUES_OF = {name: attrgetter(*kind.leaves) for name, kind in _KINDS.items()}
_FORM_OF = {name: attrgetter(*kind.form) for name, kind in _KINDS.items()}
