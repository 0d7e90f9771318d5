"""The C++ text of kernels: headers, compilation units, dispatcher wrappers and their collections.

Everything is a function of kernel, arch, templates and API table. The registry's keys come from the kernel, never
from its name, and collections come from the list that is given, never from what lies in a folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tileseer.core.errors import UserError
from tileseer.facts.operations import VARIANTS
from tileseer.libraries.ck_tile import api as ck_api
from tileseer.libraries.ck_tile import registry_key
from tileseer.libraries.ck_tile.api import CkApi
from tileseer.libraries.ck_tile.depthwise import DepthwiseConfig
from tileseer.libraries.ck_tile.kernel import KernelConfig
from tileseer.libraries.emitter import Emitter

Kernel = KernelConfig | DepthwiseConfig

CHUNK_SIZE = 25
"""Kernels of one registration source unless another number is asked for: as many as one compiler run takes."""
WRAPPERS = "dispatcher_wrappers"
REGISTERED_NDIMS = (2, 3)
"""Dimensionalities that the dispatcher's backend can build a convolution for; other kernels have no wrapper."""

_GFX_ARCH = re.compile(r"gfx[0-9a-f]{3,4}", re.ASCII)
FURTHER_TEMPLATES = ("kernel.cpp.j2", "dispatcher_wrapper.hpp.j2")
_PROBE = """\
namespace probe_{index} {{
// {why}
struct {probe} : ns_{name}::{name}_Launcher::{base} {{}};
void {function}(const ns_{name}::{name}_Launcher::HostArgs& args)
{{
    ck_tile::make_kernel<ns_{name}::Config::kBlockPerCu>({probe}{{}}, dim3(), dim3(), 0, {probe}::MakeKernelArgs(args))(
        ck_tile::stream_config{{}});
}}
}} // namespace probe_{index}
"""
_WHY_OWN_TYPE = "A type of its own gives every kernel a symbol of its own, also where the types are the same."
_WHY_ADDING = "Slices of K are added by an instance of its own, which has to compile as well."


class CkTileEmitter(Emitter):
    """Header, compilation unit and dispatcher wrapper of each kernel, and the files that collect them.

    Text that a kernel has no form for raises ``UserError`` with its name; so does a broken template or table.
    """

    pattern = "*.[ch]pp.j2"
    header_suffix, source_suffix = ".hpp", ".cpp"
    launcher = "ck_tile_kernel.hpp"
    registration = "TILESEER_CK_KERNEL({name}, CONV_{variant}, {ndim}, CONV_{dtype})"

    def __init__(self, templates: Path, api: Path, level: str = "") -> None:
        super().__init__(templates, api, level)
        self._api = ck_api.read_api(api, level or ck_api.NEWEST)
        self._table, self.level = api, self._api.level
        if not (names := [path.name for path in self.template_files(templates)]):
            raise UserError(f"{templates}: no C++ templates ({self.pattern}) here; give the folder workflow/templates")
        for name in names:
            self._template(name)

    @staticmethod
    def entries(names: Sequence[str], api: Path, arch: str) -> list[dict[str, Any]]:
        """Return how a dispatcher finds each kernel: header, wrapper, and the key's values as registration has them."""
        table = ck_api.read_api(api)
        return [
            {
                "kernel": name,
                "header": f"{name}.hpp",
                "wrapper": _wrapper_path(name),
                "registry_key": registry_key.gemm_key(KernelConfig.parse(name), table) | {"arch": arch},
            }
            for name in names
        ]

    def header(self, kernel: Kernel, arch: str) -> str:
        """Return the kernel's header for ``arch`` (gfx...)."""
        return self._filled(_TEMPLATE_OF_KIND[kernel.kind].header, kernel, arch)

    def paths(self, kernel: Kernel) -> list[str]:
        """Return the files of one kernel: header, unit and, for 2D and 3D, the dispatcher's wrapper."""
        wrapper = [_wrapper_path(kernel.name)] if kernel.ndim in REGISTERED_NDIMS else []
        return [f"{kernel.name}.hpp", f"{kernel.name}.cpp", *wrapper]

    def kernel_files(self, kernel: Kernel, arch: str) -> dict[str, str]:
        """Return path to text of the files of one kernel; see ``paths``."""
        paths = self.paths(kernel)
        templates = (_TEMPLATE_OF_KIND[kernel.kind].header, *FURTHER_TEMPLATES)[: len(paths)]
        texts = [self._filled(template, kernel, arch) for template in templates]
        return dict(zip(paths, texts, strict=True))

    def collection_files(self, kernels: Sequence[Kernel], arch: str) -> dict[str, str]:
        """Return the files that name many kernels: relative path to text, sorted.

        An include-all header per direction; one register-all header; for each direction that has 2D or 3D kernels,
        its registration sources of ``CHUNK_SIZE`` kernels and one source that calls them.
        """
        texts = {}
        registered = []
        has = {one for one in kernels if not self.lack(one, arch)}
        for variant in VARIANTS:
            row = self._api.variants[variant]
            names = sorted(one.name for one in has if one.variant == variant)
            wrapped = sorted(one.name for one in has if one.variant == variant and one.ndim in REGISTERED_NDIMS)
            path = f"include_all_grouped_conv_{row.short}_kernels.hpp"
            texts[path] = self._render("include_all.hpp.j2", variant=row, names=names)
            registered.append((row, wrapped))
            texts |= self._registration_sources(row, wrapped)
        texts[f"{WRAPPERS}/register_all_grouped_conv_kernels.hpp"] = self._render(
            "register_all.hpp.j2",
            arch=_checked(arch),
            includes=self._api.includes.registration,
            names=sorted(stem for _, wrapped in registered for stem in wrapped),
            variants=registered,
        )
        return dict(sorted(texts.items()))

    @staticmethod
    def device_source(kernels: Sequence[Any], headers: Sequence[str]) -> str:
        """Return C++ that instantiates kernel I with a type ``probe_I::Probe``, for the device pass."""
        texts = [f'#include "{kernel.name}.hpp"\n' for kernel in kernels]
        for index, (kernel, header) in enumerate(zip(kernels, headers, strict=True)):
            probe = partial(_PROBE.format, index=index, name=kernel.name)
            texts.append(probe(probe="Probe", base="Kernel", function="launch", why=_WHY_OWN_TYPE))
            if "    using Adding = " in header:
                texts.append(probe(probe="Adding", base="Adding", function="add", why=_WHY_ADDING))
        return "".join(texts)

    @property
    def levels(self) -> list[tuple[str, str, str]]:
        """How a tree shows its level of the API: level, header and words in it, the newest first."""
        marks = [(level, ck_api.read_api(self._table, level).detect) for level in ck_api.LEVELS]
        return [(level, mark.header, mark.contains) for level, mark in marks]

    def lack(self, kernel: Kernel, arch: str) -> str:
        """Return why this level of the API lacks the kernel on an arch, with the level; or an empty string."""
        lack = self._api.lack(kernel, arch)
        return f"CK Tile {self._api.level}: {lack}" if lack else ""

    def only_one_slice(self, kernel: Kernel) -> str:
        """Return why the kernel refuses every split-K above 1 at this level of the API, or an empty string."""
        return self._api.only_one_slice(kernel)

    def _registration_sources(self, row: ck_api.VariantRow, names: list[str]) -> dict[str, str]:
        if not names:
            return {}
        chunks = [names[start : start + CHUNK_SIZE] for start in range(0, len(names), CHUNK_SIZE)]
        common = {"variant": row, "includes": self._api.includes.registration, "chunks": len(chunks)}
        every = self._render("register_variant.cpp.j2", **common)
        texts = {f"register_all_grouped_conv_{row.short}_kernels.cpp": every}
        for number, own in enumerate(chunks):
            text = self._render("register_chunk.cpp.j2", **common, chunk=number, names=own)
            texts[f"register_{row.short}_chunk_{number}.cpp"] = text
        return texts

    def _filled(self, template: str, kernel: Kernel, arch: str) -> str:
        if fault := form_fault(kernel, self._api):
            raise UserError(f"{kernel.name}: {fault}")
        kind = _TEMPLATE_OF_KIND[kernel.kind]
        return self._render(
            template,
            name=kernel.name,
            arch=_checked(arch),
            k=kernel,
            ndim=kernel.ndim,
            variant=self._api.variants[kernel.variant],
            cpp_type=self._api.dtypes[kernel.dtype],
            registration_includes=self._api.includes.registration,
            key=registry_key.key_text(kind.key(kernel, self._api)),
            **kind.context(kernel, self._api),
        )


def _wrapper_path(name: str) -> str:
    return f"{WRAPPERS}/dispatcher_wrapper_{name}.hpp"


def _depthwise_context(kernel: DepthwiseConfig, api: CkApi) -> dict[str, object]:
    header = api.variants[kernel.variant].kernel_header
    return {"depthwise": api.depthwise, "includes": [*api.includes.depthwise, header]}


def _gemm_context(kernel: KernelConfig, api: CkApi) -> dict[str, object]:
    variant = api.variants[kernel.variant]
    pipeline = api.pipelines[kernel.pipeline]
    instances = api.loop == "type"
    streamk = kernel.streamk != "none"
    conv_pipeline = f"{pipeline.pipeline}<{', '.join(['PipelineProblem', *pipeline.arguments])}>"
    special = api.includes.two_stage if kernel.two_stage else []
    special = api.includes.streamk if streamk else special
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
        "includes": [*api.includes.kernel, variant.kernel_header, *special],
    }


def _checked(arch: str) -> str:
    # The arch becomes part of C++ text.
    if not _GFX_ARCH.fullmatch(arch):
        raise UserError(f"arch {arch!r} is no GPU target of the form gfx950")
    return arch


def form_fault(kernel: Kernel, api: CkApi) -> str:
    """Return why the templates have no form for the kernel at this level of the API, or an empty string.

    Whether a kernel is worth having on an arch is for ``tileseer.libraries.ck_tile.rules``.
    """
    if (reason := api.no_form(kernel)) or isinstance(kernel, DepthwiseConfig):
        return reason
    k, exists_for = kernel, api.pipelines[kernel.pipeline].variants
    reduces, streamk = api.variants[k.variant].reduces_into_workspace, k.streamk != "none"
    if k.variant not in exists_for:
        return f"the pipeline {k.pipeline} exists for {', '.join(exists_for)} only, not for {k.variant}"
    if (k.two_stage or streamk) and not reduces:
        return f"{'two_stage' if k.two_stage else 'streamk'} does not exist for {k.variant}"
    if k.two_stage and streamk:
        return "streamk reduces in its own workspace and has no second stage; set one of streamk and two_stage"
    if k.explicit_gemm and k.merges_groups:
        return f"explicit_gemm takes one group a block, num_groups_to_merge is {k.num_groups_to_merge}"
    if k.epilogue == "default" and k.num_wave_groups != 1:
        return f"the default epilogue has no wave groups, num_wave_groups is {k.num_wave_groups}"
    return ""


@dataclass(frozen=True)
class _Kind:
    """How kernels of a kind become text."""

    header: str
    key: Callable[[Any, CkApi], registry_key.Key]
    context: Callable[[Any, CkApi], dict[str, object]]
    """(kernel, API) to what the templates of the kind read."""


_TEMPLATE_OF_KIND = {
    KernelConfig.kind: _Kind("kernel.hpp.j2", registry_key.gemm_key, _gemm_context),
    DepthwiseConfig.kind: _Kind("depthwise.hpp.j2", registry_key.depthwise_key, _depthwise_context),
}
