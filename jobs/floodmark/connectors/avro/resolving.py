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
            _check_field(writer, part, f"{what}.{part.name}" if what else part.name, _is_known(writer, reader))
    elif reader.kind == writer.kind and reader.kind in ("array", "map"):
        check_resolves(writer.parts[0].node, reader.parts[0].node, what)
    elif not _is_wider(writer, reader):
        raise ValueError(f"expected {_words(reader)} for {what}, found {_words(writer)}")
    elif reader.kind in ("enum", "fixed"):
        _check_named(writer, reader, what)


def _check_field(writer: Node, part: Part, what: str, by_alias: bool) -> None:
    names = (part.name, *(part.aliases if by_alias else ()))
    found = [one for one in writer.parts if one.name in names]
    if len(found) > 1:
        both = " and ".join(one.name for one in found)
        raise ValueError(f"expected one field that {what} is read from, by name or alias, found {both}")
    if found:
        check_resolves(found[0].node, part.node, what)
    elif not part.has_default:
        hint = (
            f"; aliases of fields hold only if {writer.named.name} is an alias of their record" if part.aliases else ""
        )
        raise ValueError(f"expected the field {what}, or a default of it, found neither{hint}")


def _check_named(writer: Node, reader: Node, what: str) -> None:
    whole = reader.in_union and not writer.in_union  # Avro looks for the branch of a union by its full name
    one, other = (node.named.name if whole else _name(node) for node in (writer, reader))
    if one != other and not _is_known(writer, reader):
        raise ValueError(f"expected the {reader.kind} {other}, or an alias of it, for {what}, found {one}")
    if reader.kind == "fixed" and reader.named.size != writer.named.size:
        raise ValueError(f"expected {reader.named.size} bytes for {what}, found {writer.named.size}")
    missing = [one for one in writer.named.symbols if one not in reader.named.symbols]
    if missing and not reader.named.has_default:
        raise ValueError(f"expected the symbol {missing[0]} of {what}, or a default of the enum, found neither")


def _is_known(writer: Node, reader: Node) -> bool:
    """Whether the reader knows the writer's type by its full name; Avro applies aliases only then."""
    return writer.named.name in (reader.named.name, *reader.named.aliases)


def _name(node: Node) -> str:
    return node.named.name.rpartition(".")[2]


def _is_wider(writer: Node, reader: Node) -> bool:
    if writer.logical or reader.logical:
        return (writer.kind, writer.logical, writer.type) == (reader.kind, reader.logical, reader.type)
    return writer.kind == reader.kind or reader.kind in _WIDER.get(writer.kind, ())


def _words(node: Node) -> str:
    return f"{node.kind} with {node.logical} ({node.type})" if node.logical else node.kind
