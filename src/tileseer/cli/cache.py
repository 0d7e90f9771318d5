"""``tileseer cache``: count or shrink the shared cache."""

import argparse
import os
from pathlib import Path

from tileseer.cli import options
from tileseer.config.compile import CacheSettings
from tileseer.config.config import check
from tileseer.core.cache import Cache, open_cache
from tileseer.core.errors import UserError
from tileseer.core.yaml_files import read_yaml

CONFIG = Path("config/config.yaml")
EXAMPLES = (
    "tileseer cache stats",
    "tileseer cache gc --max-gib 10",
)
_size = options.number(float, lambda value: 0 <= value < float("inf"), "number from 0")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--folder", metavar="DIR", help=f"the cache (default: as {CONFIG} says, or the user's)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("stats", parents=[common], help="count entries and bytes")
    gc = actions.add_parser("gc", parents=[common], help="remove the entries unused for longest, and partial ones")
    gc.add_argument("--max-gib", type=_size, metavar="GIB", help="leave at most this (default: cache.max_gib)")


def run(args: argparse.Namespace) -> int:
    """Run the action on the cache of the configuration or of ``--folder``."""
    settings = check(read_yaml(CONFIG), str(CONFIG)).cache if CONFIG.exists() else CacheSettings()
    folder = os.path.abspath(args.folder) if args.folder else settings.folder
    if args.folder and not os.path.isdir(args.folder):
        raise UserError(f"--folder: {args.folder} is no folder; name one, or leave it out")
    cache = open_cache(folder, settings.max_gib)
    return {"stats": _stats, "gc": _gc}[args.action](cache, args)


def _stats(cache: Cache, args: argparse.Namespace) -> int:
    stats = cache.stats()
    text = f"{stats.folder}: {stats.entries:,} entries, {_mib(stats.bytes)} of at most {_mib(stats.max_bytes)}"
    return options.answer(args, stats._asdict(), [text])


def _gc(cache: Cache, args: argparse.Namespace) -> int:
    result = cache.collect(None if args.max_gib is None else int(args.max_gib * 2**30))
    removed = f"removed {result.removed:,} entries ({_mib(result.removed_bytes)})"
    text = f"{removed}; {result.entries:,} entries ({_mib(result.bytes)}) are left"
    return options.answer(args, result._asdict(), [text])


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
