"""The columns of files: declared, in a Parquet or Avro file's own schema, or inferred. No JVM."""

from __future__ import annotations

import codecs
import csv
import io
import os
import zlib
from collections.abc import Container, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from floodmark.connectors.avro.containers import columns_of_file, schema_of_file
from floodmark.connectors.sources.files.csvlines import unclosed
from floodmark.connectors.sources.files.folder import Content
from floodmark.core.text.ddl import Column, columns_of, fits, text_of
from floodmark.errors import RunFailed, WrongColumn

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.connectors.sources.files.options import WrittenFiles

_TO_DDL = {"bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
           "uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)",
           "float": "float", "double": "double", "string": "string", "large_string": "string", "binary": "binary",
           "large_binary": "binary", "date32[day]": "date", "null": "string"}  # fmt: skip
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_DEFLATED = ".deflate"
_UNCHECKED = (".snappy", ".lz4")  # Hadoop's own blocks: Spark takes a file that is cut for a shorter one
_PASSED_OVER = ".bz2"  # Spark passes over blocks that are damaged
_SAMPLE = 1 << 20  # bytes of a file from which columns are inferred


def is_compressed(name: str) -> bool:
    """Whether Spark decompresses a file of this name."""
    return _ends(name, *_CODECS, _DEFLATED, *_UNCHECKED)


def _ends(name: str, *endings: str) -> bool:
    return name.lower().endswith(endings)  # as Hadoop compares them


def kept_columns(place: Path | None) -> tuple[Column, ...]:
    """The columns that the first run found; none if it has not."""
    return columns_of(place.read_text()) if place is not None and place.exists() else ()


def keep_columns(place: Path, columns: tuple[Column, ...]) -> None:
    """Write the columns down, at once and durably."""
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}-{uuid4().hex}")
    with unfinished.open("w") as text:
        text.write(text_of(columns))
        text.flush()
        os.fsync(text.fileno())
    unfinished.replace(place)


def columns_in(what: str, said: WrittenFiles, file: Content) -> tuple[Column, ...]:
    """The columns of a file. Raises WrongColumn for one that is no such file, or has types that rules cannot read."""
    with _named(what, said, file):
        if said.format in _OWN:
            return _own(said, file)
        return _declared(_inferred(said, file))


def head_of(what: str, said: WrittenFiles, file: Content) -> str:
    """The schema in the head of a file of Avro. Raises WrongColumn for another file."""
    with _named(what, said, file), file.open() as content:
        return schema_of_file(content)


def untyped_columns(what: str, said: WrittenFiles, file: Content) -> frozenset[str]:
    """Columns of a Parquet file that have no type, as pandas writes those with nothing but NULL. In lower case.

    Spark takes them for numbers, and fails on any other type.
    """
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    with _named(what, said, file), file.open() as content:
        return frozenset(one.name.lower() for one in read_schema(content) if pa.types.is_null(one.type))


def check_file(what: str, said: WrittenFiles, columns: tuple[Column, ...], file: Content, whole: bool) -> None:
    """Raise WrongColumn if a file has other columns than the stream, as far as its first bytes tell.

    Of CSV, also if it is not in UTF-8: Spark would replace such bytes, and different values would become equal. And if
    a record may span lines, but the last one never ends. And if Spark may read only a part of a compressed file.
    whole: whether all of it is looked at, or its first bytes.
    """
    if said.format in _OWN:
        with _named(what, said, file):
            there = {column.name.lower(): column for column in _own(said, file, {one.name.lower() for one in columns})}
        pairs = ((there.get(column.name.lower()), column) for column in columns)
        wrong = next((pair for pair in pairs if pair[0] is not None and not fits(pair[0].type, pair[1].type)), None)
        if wrong is not None:
            raise WrongColumn(f"{what}: expected {wrong[1]} in {file.name}, found {wrong[0]}. {_WAYS}")
        return
    with _named(what, said, file):
        if said.format != "csv" or not whole:
            _check_codec(file)
        names = _checked_header(said, file, whole) if said.format == "csv" else []
    expected = [column.name for column in columns]
    if names and names != expected:
        raise WrongColumn(
            f"{what}: expected the header {', '.join(expected)} in {file.name}, found {', '.join(names)}. {_WAYS}"
        )


def _checked_header(said: WrittenFiles, file: Content, whole: bool) -> list[str]:
    """The names in a CSV file's header; none without one. Raises ValueError as `_lines_in_utf8` and `_check_closed`."""
    lines = _lines_in_utf8(file, whole)
    if said.multiline and whole:
        _check_closed(said, file)
    return _header(said, lines) if said.header else []


def _check_codec(file: Content) -> None:
    """Raise ValueError for a compressed file of which Spark may read a part without an error."""
    if _ends(file.name, _PASSED_OVER, *_UNCHECKED):
        with closing(_parts(file)) as parts:
            for _ in parts:
                continue


def _lines_in_utf8(file: Content, whole: bool) -> bytes:
    """The first lines of a file. Raises ValueError if it, or its first part, is not in UTF-8."""
    decoder, first, before = codecs.getincrementaldecoder("utf-8")(), b"", 0
    with closing(_parts(file)) as parts:
        for part in parts:
            try:
                decoder.decode(part)
            except UnicodeDecodeError as fault:
                at = f"byte 0x{fault.object[fault.start]:02x} after {before + fault.start:,} bytes, or near"
                raise ValueError(f"it is not in UTF-8: {at}. Convert it, as by `iconv -f latin1 -t utf-8`") from None
            first, before = first or part, before + len(part)
            if not whole:
                return _whole_lines(first)
    if decoder.getstate()[0]:
        raise ValueError("it is not in UTF-8: its last character is cut off")
    return _whole_lines(first)


def _check_closed(said: WrittenFiles, file: Content) -> None:
    """Raise ValueError if the last record of a file in UTF-8 does not end: its value would be the rest of the file."""
    decoder, quote = codecs.getincrementaldecoder("utf-8-sig")(), said.quote or '"'
    with closing(_parts(file)) as parts:
        texts = map(decoder.decode, parts)
        line = unclosed(texts, said.delimiter or ",", quote, said.escape or quote, said.comment)
    if line is not None:
        raise ValueError(f"a quote is never closed, in the record that starts in line {line:,}")


_WAYS = "Write the file again or move it away; if all files are like this, change `schema` and run `floodmark reset`"


@contextmanager
def _named(what: str, said: WrittenFiles, file: Content) -> Iterator[None]:
    """Names the file in errors of its readers."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as fault:
        raise RunFailed(f"{what}: {file.name} was removed while it was looked at; run again") from fault
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, EOFError, zlib.error) as fault:
        why = str(fault).splitlines()[0].rstrip(".")
        raise WrongColumn(
            f"{what}: expected {said.format.upper()} in {file.name}, found something else ({why}). "
            "Write the file again, or leave it out with `glob`"
        ) from fault


def _own(said: WrittenFiles, file: Content, wanted: Container[str] | None = None) -> tuple[Column, ...]:
    """`wanted`: names in lower case; what a file has beside them may be of any type. In Parquet they may have none."""
    with file.open() as content:
        return columns_of_file(content, wanted) if said.format == "avro" else _in_footer(content, wanted)


def _in_footer(content: BinaryIO, wanted: Container[str] | None) -> tuple[Column, ...]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(content) as found:
        old_times = {one.name for one in found.schema if one.physical_type == "INT96"}
        schema = found.schema_arrow
    utc = pa.timestamp("us", tz="UTC")  # Spark's older type of times is an instant
    read = [one for one in schema if wanted is None or (one.name.lower() in wanted and not pa.types.is_null(one.type))]
    untyped = next((one.name for one in read if _lacks_a_type(one.type)), None)
    if untyped is not None:
        raise ValueError(
            f"{untyped} has no type where all of its values are NULL; declare the columns with `schema`, or write the "
            "file with a type for it"
        )
    return _declared(pa.schema(one.with_type(utc) if one.name in old_times else one for one in read))


def _lacks_a_type(kind: Any) -> bool:
    import pyarrow.types as t

    return bool(t.is_null(kind)) or any(_lacks_a_type(kind.field(i).type) for i in range(kind.num_fields))


_OWN = ("parquet", "avro")  # formats whose files have a schema


def _declared(schema: pa.Schema) -> tuple[Column, ...]:
    """The columns of an Arrow schema. Raises ValueError for names or types that rules cannot read."""
    return columns_of(", ".join(f"`{one.name}` {_ddl(one.type)}" for one in schema)) if len(schema) else ()


def _ddl(kind: Any) -> str:
    import pyarrow.types as t

    if t.is_dictionary(kind):
        return _ddl(kind.value_type)
    if t.is_timestamp(kind) and kind.unit == "ns":
        raise ValueError("times in nanoseconds, which Spark does not read; write them in microseconds")
    if t.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if t.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if t.is_list(kind) or t.is_large_list(kind):
        return f"array<{_ddl(kind.value_type)}>"
    if t.is_map(kind):
        return f"map<{_ddl(kind.key_type)}, {_ddl(kind.item_type)}>"
    if t.is_struct(kind):
        return f"struct<{', '.join(f'{one.name}: {_ddl(one.type)}' for one in kind)}>"
    if str(kind) not in _TO_DDL:
        raise ValueError(f"no column of a stream can have Arrow's type {kind}")
    return _TO_DDL[str(kind)]


def _inferred(said: WrittenFiles, file: Content) -> pa.Schema:
    """From the first records. Times without a zone are instants, as Spark reads them in the rule's zone."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import json as arrow_json

    lines = _first_lines(file)
    if said.comment:
        lines = b"".join(one for one in lines.splitlines(True) if not one.startswith(said.comment.encode()))
    if not lines.strip():
        raise ValueError("no line to infer columns from")
    text = io.BytesIO(lines)
    if said.format == "json":
        schema = arrow_json.read_json(text).schema
    else:
        escape = said.escape if said.escape != (said.quote or '"') else None
        parsing = arrow_csv.ParseOptions(
            delimiter=said.delimiter or ",", quote_char=said.quote or '"', escape_char=escape or False,
            newlines_in_values=said.multiline,
        )  # fmt: skip
        reading = arrow_csv.ReadOptions(autogenerate_column_names=not said.header)
        schema = arrow_csv.read_csv(text, reading, parsing).schema
    names = [name if said.format == "json" or said.header else f"_c{i}" for i, name in enumerate(schema.names)]
    utc = pa.timestamp("us", tz="UTC")
    types = [utc if pa.types.is_timestamp(kind) else kind for kind in schema.types]
    return pa.schema(list(zip(names, types, strict=True)))


def _first_lines(file: Content) -> bytes:
    """Whole lines from the beginning of a file, which may be compressed."""
    with closing(_parts(file)) as parts:
        return _whole_lines(next(parts, b""))


def _whole_lines(first: bytes) -> bytes:
    """Those of a file's first part, which is all of a short file."""
    return first if len(first) < _SAMPLE else first[: first.rfind(b"\n") + 1]


def _parts(file: Content) -> Generator[bytes]:
    """The content, a part after the other, decompressed by what the ending of the file's name says."""
    if _ends(file.name, *_UNCHECKED):
        ending = file.name.rpartition(".")[2]
        raise ValueError(f"Spark reads a .{ending} file that is cut as a shorter one; compress it as .gz or .zst")
    with file.open() as raw:
        if _ends(file.name, _DEFLATED):
            inflated = zlib.decompressobj()
            while part := raw.read(_SAMPLE):
                yield inflated.decompress(part)
            return
        with _decompressed(raw, file.name) as content:
            while part := _read(content):
                yield part


def _read(content: Any) -> bytes:
    try:
        return bytes(content.read(_SAMPLE))
    except OSError as fault:
        if fault.errno is not None:
            raise
        raise ValueError(str(fault)) from None  # Arrow's, of what it cannot decompress


def _decompressed(content: BinaryIO, name: str) -> Any:
    import pyarrow as pa

    codec = next((codec for ending, codec in _CODECS.items() if _ends(name, ending)), None)
    opened = pa.PythonFile(content)
    return opened if codec is None else pa.CompressedInputStream(opened, codec)


def _header(said: WrittenFiles, lines: bytes) -> list[str]:
    """The names in the first line; none of a file without lines."""
    comment, texts = said.comment or "\0", lines.decode("utf-8-sig").splitlines()
    first = next((one for one in texts if one.strip() and not one.startswith(comment)), "")
    return next(csv.reader([first], delimiter=said.delimiter or ",", quotechar=said.quote or '"'))
