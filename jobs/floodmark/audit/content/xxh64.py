"""XXH64 of many values at once, each with a seed of its own. All arithmetic is modulo 2**64.

Integers are hashed as in Spark: those of 32 bits (also 8, 16 and booleans) as four bytes, those of 64 as eight.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
SEED = 42
AT_ONCE = 1 << 22  # bytes: each takes eight while they are picked


def seeds(count: int) -> Hashes:
    return np.full(count, SEED, np.uint64)


def of_int32(values: npt.NDArray[np.int32], seed: Hashes) -> Hashes:
    return _finished(_four(seed + _P5 + np.uint64(4), values.astype(np.uint32).astype(np.uint64)))


def of_int64(values: npt.NDArray[np.int64], seed: Hashes) -> Hashes:
    return _finished(_eight(seed + _P5 + np.uint64(8), values.astype(np.uint64)))


def of_bytes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], seed: Hashes) -> Hashes:
    """Value i is data[offsets[i]:offsets[i + 1]]. Values of one length are hashed together."""
    lengths = np.diff(offsets)
    found = np.empty(len(lengths), np.uint64)
    for length in np.unique(lengths):
        rows, step = np.flatnonzero(lengths == length), max(AT_ONCE // max(int(length), 1), 1)
        for some in (rows[i : i + step] for i in range(0, len(rows), step)):
            found[some] = _of_length(data, offsets[some], int(length), seed[some])
    return found


def _of_length(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int, seed: Hashes) -> Hashes:
    block = data[starts[:, None] + np.arange(length)]
    whole = length // 32 * 32
    found = _striped(block[:, :whole], seed) if whole else seed + _P5
    return _finished(_rest(block[:, whole:], found + np.uint64(length)))


def _striped(block: npt.NDArray[np.uint8], seed: Hashes) -> Hashes:
    """Hash blocks of 32 bytes in four lanes, then merge these."""
    lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
    for place, word in enumerate(_words(block, "<u8")):
        lanes[place % 4] = _round(lanes[place % 4], word)
    first, second, third, fourth = lanes
    found = _left(first, 1) + _left(second, 7) + _left(third, 12) + _left(fourth, 18)
    for lane in lanes:
        found = (found ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    return found


def _rest(block: npt.NDArray[np.uint8], found: Hashes) -> Hashes:
    """Hash the last 0 to 31 bytes: words of eight, one of four, single ones."""
    eights = block.shape[1] // 8 * 8
    fours = eights + (block.shape[1] - eights) // 4 * 4
    for word in _words(block[:, :eights], "<u8"):
        found = _eight(found, word)
    for word in _words(block[:, eights:fours], "<u4"):
        found = _four(found, word)
    for place in range(fours, block.shape[1]):
        found = _left(found ^ (block[:, place].astype(np.uint64) * _P5), 11) * _P1
    return found


def _words(block: npt.NDArray[np.uint8], kind: str) -> Iterator[Hashes]:
    words = np.ascontiguousarray(block).view(kind)
    return (words[:, place].astype(np.uint64) for place in range(words.shape[1]))


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _left(lane + word * _P2, 31) * _P1


def _eight(found: Hashes, word: Hashes) -> Hashes:
    return _left(found ^ _round(np.zeros_like(word), word), 27) * _P1 + _P4


def _four(found: Hashes, word: Hashes) -> Hashes:
    return _left(found ^ (word * _P1), 23) * _P2 + _P3


def _left(value: Hashes, bits: int) -> Hashes:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


def _finished(found: Hashes) -> Hashes:
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return found ^ (found >> np.uint64(32))
