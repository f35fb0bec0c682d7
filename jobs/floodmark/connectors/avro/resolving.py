"""Whether records of one schema can be read as those of another, without a change of what they say. Pure.

Avro's own rules compare no logical types: milliseconds would be read as microseconds.
"""

from __future__ import annotations

from floodmark.connectors.avro.schemas import Node, Part

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
          "string": ("bytes",), "bytes": ("string",), "enum": ()}  # fmt: skip


def check_resolves(writer: Node, reader: Node, what: str = "") -> None:
    """Raise ValueError if records of `writer` cannot be read as those of `reader`. `what`: the field, for messages."""
    if reader.kind == writer.kind == "record":
        for part in reader.parts:
            _check_field(writer, part, f"{what}.{part.name}" if what else part.name)
    elif reader.kind == writer.kind and reader.kind in ("array", "map"):
        check_resolves(writer.parts[0].node, reader.parts[0].node, what)
    elif not _is_wider(writer, reader):
        raise ValueError(f"expected {_words(reader)} for {what}, found {_words(writer)}")


def _check_field(writer: Node, part: Part, what: str) -> None:
    names = (part.name, *part.aliases)
    found = next((one for one in writer.parts if one.name in names), None)
    if found is not None:
        check_resolves(found.node, part.node, what)
    elif not part.has_default:
        raise ValueError(f"expected the field {what}, or a default of it, found neither")


def _is_wider(writer: Node, reader: Node) -> bool:
    if writer.logical or reader.logical:
        return (writer.kind, writer.logical, writer.type) == (reader.kind, reader.logical, reader.type)
    return writer.kind == reader.kind or reader.kind in _WIDER.get(writer.kind, ())


def _words(node: Node) -> str:
    return f"{node.kind} with {node.logical} ({node.type})" if node.logical else node.kind
