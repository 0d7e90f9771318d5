"""The C++ of a kernel: one header."""

from tileseer.families import registration


def template_files(templates):
    return []


def files(kernels, arch, templates, api, level):
    return {f"{k.name}.hpp": f"// {arch}\nusing {k.name} = Toy<{k.tile_m}, {k.tile_n}>;\n" for k in kernels}


def collection_files(kernels, arch, templates, api, level):
    return {"library.cpp": registration.source(kernels)}


def entries(names, api, arch):
    return [{"kernel": name, "header": f"{name}.hpp", "registry_key": {"name": name}} for name in names]
