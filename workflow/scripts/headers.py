from pathlib import Path

from tileseer.core.script import stage_script


@stage_script
def main(arch: str, chunk: int, configs: Path, templates: Path, api: Path, bundle: Path, level: str = "") -> str:
    """Emit the C++ files of one chunk of kernels as one bundle.

    bundle: tar to write
    """
    from tileseer.core import bundle as bundles
    from tileseer.libraries import kernel_table
    from tileseer.libraries.registry import library_of_arch

    kernels = kernel_table.kernels_of_rows(kernel_table.read_kernel_table(configs, chunk))
    library = library_of_arch(arch)
    emitter = library.made_here(library.emitter)(templates, api, level)
    bundles.write_bundle(bundle, emitter.files(kernels, arch))
    return f"sources of {len(kernels):,} kernels written"
