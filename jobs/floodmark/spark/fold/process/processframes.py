"""Put rows and stored values of a process rule into one frame, as `spark.fold.process.turns` reads and writes it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from floodmark.connectors.columns import KEY_TYPES, is_key_type
from floodmark.core.process.context import CLOCK_TIMERS, COUNTERS, TIMERS
from floodmark.core.rules.rule import Process, Rule
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import WrongColumn
from floodmark.spark.fold.process.turns import REJECTED, Layout
from floodmark.spark.read.batch import united
from floodmark.spark.read.shape import Shape, micros, time_type
from floodmark.spark.session.constants import uncompiled_constant

NUMBERS = {COUNTERS: "value", TIMERS: "at", CLOCK_TIMERS: "at"}  # the value's column in the tables of named values


class Frames:
    """The columns of a rule's streams and state tables, and the frames built from them."""

    def __init__(self, rule: Rule, shape: Shape, process: Process):
        self._rule, self._shape = rule, shape
        self.process = process
        self.key = _key_fields(process, shape)
        self.kinds = {name: str(time_type(rule.streams[name], schema)) for name, schema in shape.streams.items()}
        self.time = next(iter(self.kinds.values()))
        self.output = _struct(process.output)
        self._states = {name: _struct(ddl) for name, ddl in process.state.items()}
        self.layout = Layout(
            keys=len(self.key),
            streams=tuple((name, tuple(schema.names)) for name, schema in shape.streams.items()),
            tables=process.tables,
            states=tuple(tuple(schema.names) for schema in self._states.values()),
            output=len(self.output),
        )
        refuse_unfit_for_a_class(shape)

    def event_time(self, stream: str) -> str:
        """The column with the event time, as the stream spells it."""
        time = self._rule.streams[stream].event_time
        assert time is not None
        return next(column for column in self._shape.streams[stream].names if column.lower() == time.name.lower())

    def names_of(self, table: str) -> list[str]:
        """The columns that identify a value in a state table."""
        return [field.name for field in self.key] + (["name"] if table in NUMBERS else [])

    def table(self, name: str) -> StructType:
        """Columns: key, value, event time of the put, whether the value is deleted, epoch."""
        found = StructType([*self.key, *self._values_of(name)])
        return found.add("_at", self.time).add("_deleted", "boolean").add("_epoch", "long")

    def _values_of(self, table: str) -> list[StructField]:
        if table in self._states:
            return list(self._states[table].fields)
        kind = {COUNTERS: "long", TIMERS: self.time, CLOCK_TIMERS: "timestamp"}[table]
        return list(StructType().add("name", "string").add(NUMBERS[table], kind).fields)

    def row(self, stream: str, rows: DataFrame) -> DataFrame:
        """Rows of a stream that are due."""
        place, lower = list(self._shape.streams).index(stream), {name.lower(): name for name in rows.columns}
        keys = [lower[field.name.lower()] for field in self.key]
        time = micros(self.event_time(stream), self.kinds[stream])
        return rows.select(
            *_renamed(keys, self.layout.key_columns),
            *_tags(waits=True, part=place, time=time),
            *_renamed(list(self._shape.streams[stream].names), self.layout.row_columns(place)),
        )

    def value(self, table: str, stored: DataFrame) -> DataFrame:
        """Stored values of a state table."""
        place = self.layout.tables.index(table)
        found = [F.col("_epoch").alias("epoch"), F.col("_deleted").alias("gone")]
        if table in self._states:
            found += _renamed(list(self._states[table].names), self.layout.state_columns(place))
        else:
            number = "value" if table == COUNTERS else micros("at", self._kind_of(table))
            found += [F.col("name"), F.expr(number).alias("number")]
        tags = _tags(waits=False, part=place, time=micros("_at", self.time))
        return stored.select(*self._keys_of(), *tags, *found)

    def keys(self, stored: DataFrame) -> DataFrame:
        """The keys of a state table's rows."""
        return stored.select(*self._keys_of())

    def _keys_of(self) -> list[Column]:
        return _renamed([field.name for field in self.key], self.layout.key_columns)

    def _kind_of(self, table: str) -> str:
        return "timestamp" if table == CLOCK_TIMERS else self.time

    def worker_input(self, session: SparkSession, rows: list[DataFrame], values: list[DataFrame]) -> DataFrame:
        """All rows and values in one frame, partitioned by key: a key's values, newest first, then its sorted rows."""
        nothing = session.createDataFrame([], self._worker_input_schema())
        return (
            united([nothing, *values, *rows]).repartition(*self.layout.key_columns).sortWithinPartitions(*self._order())
        )

    def _worker_input_schema(self) -> StructType:
        found = self._with_keys(StructType().add("waits", "boolean").add("part", "integer").add("time", "long"))
        found = found.add("epoch", "long").add("gone", "boolean").add("name", "string").add("number", "long")
        for i, schema in enumerate(self._shape.streams.values()):
            found = _with_all(found, self.layout.row_columns(i), schema)
        return self._with_states(found)

    def worker_output_schema(self) -> StructType:
        """Columns of the class's output."""
        found = self._with_keys(StructType().add("part", "integer").add("time", "long").add("gone", "boolean"))
        found = found.add("name", "string").add("number", "long")
        found = self._with_states(_with_all(found, self.layout.output_columns, self.output))
        return self._with_rejected(found) if self._rule.on_error == "dead" else found

    def _with_rejected(self, schema: StructType) -> StructType:
        schema = StructType([*schema.fields]).add("why", "string")
        for i, stream in enumerate(self._shape.streams.values()):
            schema = _with_all(schema, self.layout.row_columns(i), stream)
        return schema

    def _with_keys(self, schema: StructType) -> StructType:
        return _with_all(schema, self.layout.key_columns, StructType(list(self.key)))

    def _with_states(self, schema: StructType) -> StructType:
        for i, state in enumerate(self._states.values()):
            schema = _with_all(schema, self.layout.state_columns(i), state)
        return schema

    def _order(self) -> list[Column]:
        keys = [F.col(name) for name in self.layout.key_columns]
        rows = [
            _ordered(f"r{i}_{schema.names.index(name)}", schema[name].dataType)
            for i, schema in enumerate(self._shape.streams.values())
            for name in sorted(schema.names)
        ]
        return [*keys, F.col("waits"), F.col("epoch").desc(), F.col("time"), F.col("part"), *rows]

    def results(self, taken: DataFrame) -> DataFrame:
        """Output rows in what the class returned."""
        return taken.select(*_renamed(self.layout.output_columns, list(self.output.names)))

    def rejected(self, stream: str, taken: DataFrame) -> DataFrame:
        """Rows of a stream that the class rejected, with `_reason`."""
        place = list(self._shape.streams).index(stream)
        columns = _renamed(self.layout.row_columns(place), list(self._shape.streams[stream].names))
        return taken.where(f"part = {REJECTED - place}").select(*columns, F.col("why").alias("_reason"))

    def changes(self, table: str, taken: DataFrame, epoch: int) -> DataFrame:
        """Rows for a state table in what the class returned."""
        place = self.layout.tables.index(table)
        if table in self._states:
            values = _renamed(self.layout.state_columns(place), list(self._states[table].names))
        else:
            number = "number" if table == COUNTERS else _instant("number", self._kind_of(table))
            values = [F.col("name"), F.expr(number).alias(NUMBERS[table])]
        stamps = [
            f"{_instant('time', self.time)} AS _at",
            "gone AS _deleted",
            f"{uncompiled_constant(f'{epoch}L', 'part')} AS _epoch",
        ]
        keys = _renamed(self.layout.key_columns, [field.name for field in self.key])
        return taken.where(f"part = {place}").select(*keys, *values, *map(F.expr, stamps))


def _struct(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def _renamed(columns: list[str], names: list[str]) -> list[Column]:
    return [F.col(quoted(column)).alias(name) for column, name in zip(columns, names, strict=True)]


def _tags(waits: bool, part: int, time: str) -> list[Column]:
    return [F.lit(waits).alias("waits"), F.lit(part).alias("part"), F.expr(time).alias("time")]


def _with_all(schema: StructType, names: list[str], of: StructType) -> StructType:
    return StructType([*schema.fields, *(StructField(n, f.dataType, True) for n, f in zip(names, of, strict=True))])


def _instant(column: str, kind: str) -> str:
    """SQL that turns a column of microseconds into a time."""
    if kind == "timestamp":
        return f"timestamp_micros({column})"
    return f"timestampadd(MICROSECOND, {column}, TIMESTAMP_NTZ'1970-01-01 00:00:00')"


def _ordered(column: str, kind: DataType) -> Column:
    """The column to sort by: maps cannot be sorted, but their entries can."""
    return F.array_sort(F.map_entries(F.col(column))) if isinstance(kind, MapType) else F.col(column)


def _key_fields(process: Process, shape: Shape) -> list[StructField]:
    """Key columns with the spelling of the first stream. Raises WrongColumn for a type that cannot be compared."""
    found: dict[str, StructField] = {}
    for stream, schema in shape.streams.items():
        fields = {field.name.lower(): field for field in schema}
        for name in process.key:
            field = fields[name.lower()]
            first = found.setdefault(name, StructField(field.name, field.dataType, True))
            if field.dataType != first.dataType or not is_key_type(field.dataType.simpleString()):
                raise WrongColumn(
                    f"stream {stream}: expected key column {name} with the same type in all streams, one of "
                    f"{', '.join(KEY_TYPES)}, found {field.dataType.simpleString()}"
                )
    return list(found.values())


def refuse_unfit_for_a_class(shape: Shape) -> None:
    """Raise WrongColumn for a column that cannot be sorted, or whose values Python lacks.

    Rows of one time are sorted by all their columns.
    """
    for stream, schema in shape.streams.items():
        for field in schema:
            shown = f"{field.name} {field.dataType.simpleString()}"
            inside = field.dataType.valueType if isinstance(field.dataType, MapType) else field.dataType
            if not _has_order(inside):
                raise WrongColumn(
                    f"stream {stream}: expected columns that can be sorted, found {shown}: a class gets rows with "
                    "equal event times sorted by all their columns; read a table without that column"
                )
            if isinstance(field.dataType, MapType) and isinstance(field.dataType.keyType, StructType | ArrayType):
                raise WrongColumn(
                    f"stream {stream}: expected maps whose keys are neither arrays nor structs, found {shown}: a class "
                    "gets a map as a dict, which has no such keys; read a table without that column"
                )


def _has_order(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_order(field.dataType) for field in kind)
    element = getattr(kind, "elementType", None)
    return _has_order(element) if element is not None else not isinstance(kind, (MapType, VariantType))
