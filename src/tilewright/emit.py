"""The C++ text of kernels: headers, compilation units, dispatcher wrappers and their collections.

Everything is a function of kernel, arch, templates and API table. The registry's keys come from the kernel, never
from its name, and collections come from the list that is given, never from what lies in a folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import jinja2

from tilewright import ck_api
from tilewright.ck_api import CkApi
from tilewright.errors import UserError
from tilewright.kernel import KernelConfig, name
from tilewright.operation import VARIANTS
from tilewright.templates import mistakes_named

CHUNK_SIZE = 25
"""Kernels of one registration source, as many as one compiler run takes."""
WRAPPERS = "dispatcher_wrappers"
REGISTERED_NDIMS = (2, 3)
"""Dimensionalities that the dispatcher's backend can build a convolution for; other kernels have no wrapper."""

_ARCH = re.compile(r"gfx[0-9a-f]{3,4}", re.ASCII)
_PATTERN = "*.[ch]pp.j2"
_FLAGS = (
    "double_smem_buffer", "explicit_gemm", "streamk_persistent", "split_image", "pad_m", "pad_n", "pad_k",
)  # fmt: skip


def template_files(template_dir: Path) -> list[Path]:
    """Return the C++ templates of a folder, sorted: what emitted text depends on besides the API table."""
    found = sorted(template_dir.glob(_PATTERN))
    if not found:
        raise UserError(f"{template_dir}: no C++ templates ({_PATTERN}) here; give the folder workflow/templates")
    return found


def emission_digest(template_dir: Path, api_table: Path) -> str:
    """Return the SHA-256 (hex) of the templates and the API table: it changes when emitted text can change."""
    digest = hashlib.sha256()
    for path in (*template_files(template_dir), api_table):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


class Emitter:
    """Fills the templates in; one object serves any number of kernels and archs.

    Text that a kernel has no form for raises ``UserError`` with its name; so does a broken template or table.
    """

    def __init__(self, template_dir: Path, api_table: Path) -> None:
        """Compile the templates of ``template_dir`` and read ``api_table`` (config/ck_api.yaml)."""
        self._api = ck_api.load(api_table)
        self._where = template_dir
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(template_dir),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
            auto_reload=False,
        )
        self._templates = {path.name: self._compiled(environment, path.name) for path in template_files(template_dir)}

    def header(self, kernel: KernelConfig, arch: str) -> str:
        """Return the kernel's header for ``arch`` (gfx...)."""
        return self._render("kernel.hpp.j2", **self._context(kernel), arch=_checked(arch))

    def unit(self, kernel: KernelConfig) -> str:
        """Return the compilation unit of the kernel's header."""
        return self._render("kernel.cpp.j2", name=name(kernel))

    def wrapper(self, kernel: KernelConfig, arch: str) -> str:
        """Return the header that makes the kernel's entry in the dispatcher's registry; 2D and 3D only."""
        if kernel.ndim not in REGISTERED_NDIMS:
            raise UserError(f"{name(kernel)}: the dispatcher's backend has no {kernel.ndim}D convolution to register")
        context = self._context(kernel) | {"includes": self._api.includes.registration}
        return self._render(
            "dispatcher_wrapper.hpp.j2", **context, arch=_checked(arch), key_specialization=_key_specialization(kernel)
        )

    def files(self, kernels: Sequence[KernelConfig], arch: str) -> dict[str, str]:
        """Return the files that belong to one kernel each: relative path to text, sorted.

        ``<name>.hpp``, ``<name>.cpp`` and, for 2D and 3D, ``dispatcher_wrappers/dispatcher_wrapper_<name>.hpp``.
        """
        texts = {}
        for kernel in kernels:
            stem = name(kernel)
            texts[f"{stem}.hpp"] = self.header(kernel, arch)
            texts[f"{stem}.cpp"] = self.unit(kernel)
            if kernel.ndim in REGISTERED_NDIMS:
                texts[f"{WRAPPERS}/dispatcher_wrapper_{stem}.hpp"] = self.wrapper(kernel, arch)
        return dict(sorted(texts.items()))

    def collection_files(self, kernels: Sequence[KernelConfig], arch: str) -> dict[str, str]:
        """Return the files that name many kernels: relative path to text, sorted.

        An include-all header a direction; one register-all header; for each direction that has 2D or 3D kernels,
        its registration sources of ``CHUNK_SIZE`` kernels and one source that calls them.
        """
        texts = {}
        registered = []
        for variant in VARIANTS:
            row = self._api.variants[variant]
            own = sorted((name(kernel), kernel.ndim) for kernel in set(kernels) if kernel.variant == variant)
            every = [stem for stem, _ in own]
            texts[f"include_all_grouped_conv_{row.short}_kernels.hpp"] = self._render(
                "include_all.hpp.j2", variant=row, names=every
            )
            wrapped = [stem for stem, ndim in own if ndim in REGISTERED_NDIMS]
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

    def _registration_sources(self, row: ck_api.VariantRow, names: list[str]) -> dict[str, str]:
        if not names:
            return {}
        chunks = [names[start : start + CHUNK_SIZE] for start in range(0, len(names), CHUNK_SIZE)]
        common = {"variant": row, "includes": self._api.includes.registration, "chunks": len(chunks)}
        texts = {
            f"register_{row.short}_chunk_{number}.cpp": self._render(
                "register_chunk.cpp.j2", **common, chunk=number, names=chunk
            )
            for number, chunk in enumerate(chunks)
        }
        texts[f"register_all_grouped_conv_{row.short}_kernels.cpp"] = self._render("register_variant.cpp.j2", **common)
        return texts

    def _context(self, kernel: KernelConfig) -> dict[str, object]:
        api = self._api
        fault = _fault(kernel, api)
        if fault:
            raise UserError(f"{name(kernel)}: {fault}")
        variant = api.variants[kernel.variant]
        streamk = kernel.streamk != "none"
        flags = {field: getattr(kernel, field) for field in _FLAGS}
        flags |= {"cshuffle": kernel.epilogue == "cshuffle", "streamk": streamk}
        return {
            "name": name(kernel),
            "k": kernel,
            "variant": variant,
            "pipeline": api.pipelines[kernel.pipeline],
            "layout": api.layouts[kernel.ndim],
            "cpp_type": api.dtypes[kernel.dtype],
            "scheduler": api.schedulers[kernel.scheduler],
            "specialization": api.specializations[kernel.specialization],
            "reduction": api.streamk.get(kernel.streamk),
            "config_alias": variant.streamk_config_alias if streamk else variant.config_alias,
            "dispatches_tail": not (streamk or kernel.two_stage),
            "flag": {field: "true" if value else "false" for field, value in flags.items()},
            "includes": _kernel_includes(kernel, api),
        }

    def _compiled(self, environment: jinja2.Environment, template: str) -> jinja2.Template:
        with mistakes_named(self._where / template):
            return environment.get_template(template)

    def _render(self, template: str, **context: object) -> str:
        if template not in self._templates:
            raise UserError(f"{self._where}: the template {template} is missing")
        with mistakes_named(self._where / template):
            return self._templates[template].render(context)


def _checked(arch: str) -> str:
    # The arch becomes part of C++ text.
    if not _ARCH.fullmatch(arch):
        raise UserError(f"arch {arch!r} is no GPU target of the form gfx950")
    return arch


def _kernel_includes(kernel: KernelConfig, api: CkApi) -> list[str]:
    special = api.includes.two_stage if kernel.two_stage else []
    special = api.includes.streamk if kernel.streamk != "none" else special
    return [*api.includes.kernel, api.variants[kernel.variant].kernel_header, *special]


def _key_specialization(kernel: KernelConfig) -> str:
    """Return the registry key's specialization, with the options that the key has no field for."""
    extras = (
        ("+2stage", kernel.two_stage),
        ("+explicit_gemm", kernel.explicit_gemm),
        ("+dsb", kernel.double_smem_buffer),
        ("+pad" + "".join(str(int(pad)) for pad in kernel.pads), not all(kernel.pads)),
    )
    return kernel.specialization + "".join(text for text, present in extras if present)


def _fault(kernel: KernelConfig, api: CkApi) -> str:
    """Return why CK Tile has no form for this kernel, or an empty string.

    Whether a kernel is worth having on an arch is for ``tilewright.rules.validity``.
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
    if k.streamk != "none" and k.pipeline == "basic_async_v1" and k.dtype == "fp32":
        return "streamk with the pipeline basic_async_v1 does not exist for fp32"
    if k.explicit_gemm and k.num_groups_to_merge != 1:
        return f"explicit_gemm takes one group a block, num_groups_to_merge is {k.num_groups_to_merge}"
    if k.epilogue == "default" and k.num_wave_groups != 1:
        return f"the default epilogue has no wave groups, num_wave_groups is {k.num_wave_groups}"
    return ""
