"""Models that a GPU without measurements borrows from a sibling: another product of the same generation.

The last word of the path of its models names the GPU (``results/models/gfx942_80_miopen``); this folder need not
exist. The models that it borrows are in the folder beside it.
"""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from tileseer.core import documents, places
from tileseer.core.errors import UserError
from tileseer.facts.arch import ArchSpecs
from tileseer.facts.hardware import Hardware, read_products, target
from tileseer.facts.names import ARCH_PATTERN
from tileseer.learn import model_files
from tileseer.libraries.library import Loss
from tileseer.libraries.registry import library_of_arch

ACROSS = "a model of another generation can pick worse than a fixed order of the kernels: train on times of this GPU"


class Borrowed(NamedTuple):
    """Whose models are used for which GPU."""

    by: str
    """Arch of the GPU that has no models."""
    arch: str
    """Of the models."""
    device: str
    """Product that the models were trained on."""
    loss: Loss | None
    """None where nothing is known of it."""
    units: tuple[int | None, int]
    """Compute units of the GPU, as far as they are known, and of the product."""

    @property
    def lines(self) -> list[str]:
        """What every output says."""
        own, lent = self.units
        loss = "unknown, because no sibling was measured with these kernels"
        if self.loss is not None:
            loss = f"{self.loss.mean} points of the mean, {self.loss.p10} of P10 ({self.loss.basis})"
        elif own is None:
            loss += f", or the number of compute units is not known: a name such as {target(self.by)}_80_miopen says it"
        sizes = f"{self.device}, {lent} compute units" + ("" if own is None else f", against {own}")
        return [
            f"borrowed: {self.by} has no models; these are of {self.arch} ({sizes})",
            f"expected loss against models of its own: {loss}",
        ]

    def record(self) -> dict[str, Any]:
        """Return the same for JSON."""
        return self._asdict() | {"loss": None if self.loss is None else self.loss._asdict()}


def borrow(models: Path, like: str, units: int | None = None) -> tuple[Path, Borrowed]:
    """Return the folder whose models ``models`` borrows, that of the arch ``like``, and a label for what they say.

    ``units``: compute units of the GPU, by default those that its name says or the table of products has.
    ``UserError``: the GPU has models of its own, there are none of ``like``, or it is no sibling, or no near one.
    """
    own = Path(os.path.abspath(models))
    if (own / model_files.INDEX).exists():
        raise UserError(f"{models}: has models of its own; leave --like out")
    if not re.fullmatch(ARCH_PATTERN, own.name):
        raise UserError(f"{models}: with --like, the last word names your GPU, such as gfx942_80_miopen")
    if not re.fullmatch(ARCH_PATTERN, like):
        raise UserError(f"--like {like}: is no arch, such as gfx942_miopen")
    folder = own.with_name(like)
    if not (folder / model_files.INDEX).is_file():
        there = sorted(path.parent.name for path in own.parent.glob(f"*/{model_files.INDEX}"))
        raise UserError(f"--like {like}: {own.parent} has no such models; it has {', '.join(there) or 'none'}")
    index = model_files.read_index(folder)
    _refuse_strangers(own.name, index.arch)
    first = folder / next(iter(index.operations.values())).folder
    lent = documents.read_document(first / model_files.HARDWARE, Hardware).compute_units
    units = units or _units_of(own.name)
    loss = _loss(own.name, like, units, lent)
    return folder, Borrowed(own.name, index.arch, index.device, loss, (units, lent))


def _units_of(arch: str) -> int | None:
    """Return the compute units of a GPU by its name, gfx942_80_miopen, or by that of a product; None if unknown."""
    words = arch.removeprefix(target(arch)).strip("_").split("_")
    if counts := [int(word) for word in words if re.fullmatch("[1-9][0-9]{0,3}", word)]:
        return counts[0]
    products = read_products(places.find_file(Path("config/hardware.yaml")))
    product = next((one for name, one in products.items() if arch == name or arch.startswith(f"{name}_")), None)
    return product.compute_units if product else None


def _loss(own: str, like: str, units: int | None, lent: int) -> Loss | None:
    """Return what borrowing is known to cost at this distance; ``UserError`` where no sibling is near."""
    known = library_of_arch(like).borrowed
    if units is None or not known:
        return None
    ratio = max(units, lent) / min(units, lent)
    loss = next((one for one in known if ratio <= one.most_ratio), None)
    if loss is None:
        raise UserError(
            f"--like {like}: is of a GPU with {lent} compute units, but {own} has {units}: no model is lent to a GPU "
            f"with more than {known[-1].most_ratio:g} times more or fewer of them"
        )
    return loss


def _refuse_strangers(own: str, like: str) -> None:
    """Raise a ``UserError`` unless two archs have the same kernels, and GPUs of one generation."""
    kernels = [library_of_arch(arch).name for arch in (own, like)]
    if kernels[0] != kernels[1]:
        raise UserError(f"--like {like}: has {kernels[1]} candidates, but {own} names {kernels[0]} ones; rename {own}")
    gpus = [target(arch) for arch in (own, like)]
    generations = [_generation(gpu) for gpu in gpus]
    if generations[0] != generations[1]:
        pair = " and ".join(f"{gpu} ({generation})" for gpu, generation in zip(gpus, generations, strict=True))
        raise UserError(f"--like {like}: {pair} are of different generations; {ACROSS}")


def _generation(gpu: str) -> str:
    """Return the generation of a GPU target by the table of archs; one that the table lacks is one of its own."""
    archs = ArchSpecs.load(places.find_file(Path("config/arch_specs.json"))).archs
    return archs[gpu].family if gpu in archs else gpu
