from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(
    arch: str, configs: Path, bundles: list[Path], templates: Path, api: Path, folder: Path, level: str = ""
) -> str:
    """Unpack all C++ of one operation into a folder, with what a build needs around the kernels.

    bundles: bundles of all chunks
    """
    from tileseer.core import bundle
    from tileseer.core.atomic import write_text
    from tileseer.libraries import kernel_table
    from tileseer.libraries.registry import library_of_arch

    kernels = kernel_table.kernels_of_rows(kernel_table.read_kernel_table(configs))
    library = library_of_arch(arch)
    emitter = library.made_here(library.emitter)(templates, api, level)
    collections = emitter.collection_files(kernels, arch)
    bundle.unpack_bundles(bundles, folder)
    for name, text in collections.items():
        write_text(folder / name, text)
    return f"{folder} has {len(kernels)} kernels and {len(collections)} collection files"
