"""The C++ text."""

from tileseer.libraries.emitter import Emitter


class ToyEmitter(Emitter):
    """One header per kernel."""

    pattern = "*.none"
    header_suffix, source_suffix = ".hpp", ".cpp"
    launcher = "toy_kernel.hpp"
    registration = "TOY_KERNEL({name})"

    @staticmethod
    def entries(names, api, arch):
        return [{"kernel": name, "header": f"{name}.hpp", "registry_key": {"name": name}} for name in names]

    def paths(self, kernel):
        return [self.header_file(kernel)]

    def kernel_files(self, kernel, arch):
        text = f"// {arch}\nusing {kernel.name} = Toy<{kernel.tile_m}, {kernel.tile_n}>;\n"
        return {self.header_file(kernel): text}

    def collection_files(self, kernels, arch):
        return {"library.cpp": self.registration_source(kernels)}
