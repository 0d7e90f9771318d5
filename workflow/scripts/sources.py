from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, stage


@stage()
def main(
    arch: str, configs: Input, bundles: list[Input], templates: Place, api: Input, folder: Output,
    level: str = "", operation: str = "", settings: Settings = "{}",
) -> str:  # fmt: skip
    """Unpack all C++ of one operation into a folder, with what a build needs around the kernels.

    bundles: bundles of all chunks
    """
    from tileseer.configs import kernel_table
    from tileseer.core import bundle
    from tileseer.core.atomic import write_text
    from tileseer.families.registry import of_arch

    kernels = kernel_table.kernels(kernel_table.read(configs))
    collections = of_arch(arch).part("emit").collection_files(kernels, arch, templates, api, level)
    bundle.unpack(bundles, folder)
    for name, text in collections.items():
        write_text(folder / name, text)
    return f"{folder} has {len(kernels)} kernels and {len(collections)} collection files"
