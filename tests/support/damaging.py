"""Damage to one file: truncated, emptied, one bit flipped, deleted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WAYS = ("deleted", "emptied", "truncated", "flipped")


def damage(file: Path, how: str, seed: int = 0) -> None:
    """`seed`: which bit is flipped."""
    data = file.read_bytes()
    if how == "deleted":
        file.unlink()
    else:
        changed = {"emptied": lambda _: b"", "truncated": _half, "flipped": _flipper(f"{file.name} {seed}")}[how](data)
        file.write_bytes(changed)


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipper(seed: str) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = random.Random(seed).randrange(8 * len(data))
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)

    return flip


@contextmanager
def damaged(file: Path, how: str, seed: int = 0) -> Iterator[None]:
    """The damage, undone at the end."""
    data = file.read_bytes()
    damage(file, how, seed)
    try:
        yield
    finally:
        file.write_bytes(data)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
