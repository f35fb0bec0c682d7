"""Finds the deletion vector of a file.

Delta's protocol writes the name of its file as a UUID in Z85, ZeroMQ's base 85; Python uses another alphabet.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from uuid import UUID

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_PYTHONS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID = 20  # characters; a folder may precede them


def vector_file(descriptor: Mapping[str, Any] | None) -> str | None:
    """The file's path within its table; None without a vector, or if it is in the log or in another place."""
    if not descriptor or descriptor["storageType"] != "u":
        return None
    folder, name = descriptor["pathOrInlineDv"][:-_UUID], descriptor["pathOrInlineDv"][-_UUID:]
    found = UUID(bytes=base64.b85decode(name.translate(str.maketrans(_Z85, _PYTHONS))))
    return f"{folder}/deletion_vector_{found}.bin" if folder else f"deletion_vector_{found}.bin"
