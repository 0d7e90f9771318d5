from __future__ import annotations

from tileseer.core.stage import Input, Output, Place, Settings, chunk_of_plan, stage


@stage(configs=chunk_of_plan, plan=chunk_of_plan)
def main(
    arch: str, chunk: int, configs: Input, templates: Place, api: Input, bundle: Output,
    level: str = "", operation: str = "", plan: Input | None = None, settings: Settings = "{}",
) -> str:  # fmt: skip
    """Emit the C++ files of one chunk of kernels as one bundle.

    bundle: tar to write
    """
    from tileseer.configs import kernel_table
    from tileseer.core import bundle as bundles
    from tileseer.families.registry import of_arch

    kernels = kernel_table.kernels(kernel_table.read_chunk(configs, chunk))
    bundles.write(bundle, of_arch(arch).part("emit").files(kernels, arch, templates, api, level))
    return f"the sources of {len(kernels)} kernels are written"
