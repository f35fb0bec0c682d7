"""Rules with a class: what is read of its text, and how each mistake is named. No user's code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegerType, MapType, StructType
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.columns import check_columns
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.process.context import Declaration
from floodmark.core.process.declaration import Declared, declared
from floodmark.core.process.loading import check_as_read, declared_by, load_class
from floodmark.core.process.stable import of_its_epoch, unstable
from floodmark.core.process.values import Record
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.core.text.ddl import columns_of, text_of
from floodmark.errors import RuleChanged, RuleInvalid, WrongColumn
from floodmark.spark.fold.process.processframes import refuse_unfit_for_a_class
from floodmark.spark.read.shape import Shape

RULE = """\
rule: alarms
streams:
  readings: {delta: /lake/readings, event_time: at, lateness: 10 seconds}
process: alarms:Alarm
key: [device]
sinks: [{delta: /lake/alarms}]
"""
CLASS = """\
from datetime import timedelta
raise SystemExit("reading a rule must not run its class")
class Base:
    state = {"last": "value DOUBLE, at TIMESTAMP", "odd": "n INT"}
    def on_timer(self, key, at, name, ctx):
        yield key[0], at, "quiet"
class Alarm(Base):
    output = ("device STRING, at TIMESTAMP, "
              "message STRING")
    ttl = {"last": "30 days"}
    def process(self, key, rows, ctx):
        for row in rows:
            ctx.put_state("last", row)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "alarms.yaml").write_text(RULE)
    (tmp_path / "alarms.py").write_text(CLASS)
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Callable[..., Rule]:
    """A rule whose file and class have `(old, new)` in place."""

    def loaded(*edits: tuple[str, str]) -> Rule:
        for name, text in (("alarms.yaml", RULE), ("alarms.py", CLASS)):
            for old, new in edits:
                text = text.replace(old, new)
            (folder / name).write_text(text)
        return load_rule(folder / "alarms.yaml", {})

    return loaded


def test_a_rule_holds_what_its_class_declares_and_the_text_of_its_module(load: Any) -> None:
    rule = load()
    process = rule.process
    assert (process.module, process.name, process.key) == ("alarms", "Alarm", ("device",))
    assert process.output == "device string, at timestamp, message string"
    assert process.state == {"last": "value double, at timestamp", "odd": "n int"}
    assert process.ttl_us == {"last": 30 * 86_400_000_000}
    assert (process.timers, process.clock_timers) == (True, False)
    assert process.tables == ("last", "odd", "counters", "timers")
    assert process.source == CLASS
    assert Rule.from_json(rule.to_json()) == rule
    assert (rule.query.star, rule.query.windows) == (True, ())
    assert load(("30 days", "31 days")).hash != rule.hash


def test_the_module_may_be_on_the_python_path(folder: Path, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "elsewhere" / "pack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('a package must not be imported')")
    (package / "alarms.py").write_text(CLASS)
    monkeypatch.syspath_prepend(str(folder / "elsewhere"))
    assert load(("alarms:Alarm", "pack.alarms:Alarm")).process.file == "pack/alarms.py"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("alarms:Alarm", "alarms"), "process: expected module:Class, such as alarms:Alarm"),
        (("alarms:Alarm", "other:Alarm"), "process: expected the module other at"),
        (("alarms:Alarm", "alarms:Alarms"), "process: alarms.py: expected a class Alarms, found Base, Alarm"),
        (("process: alarms:Alarm\n", ""), "expected either `sql: ...` or `process: module:Class` with `key: [...]`"),
        (("key: [device]\n", ""), "expected `key: [column, ...]` with `process`, found nothing"),
        (("[device]", "[]"), "key: expected a list of at least one column"),
        (("[device]", "[device, Device]"), "key: expected each column once"),
        (("[device]", "[name]"), "key: expected columns without a leading _ and none of name, value, at, found name"),
        (("[device]", "[value]"), "key: expected columns without a leading _ and none of"),
        (("[device]", "[N]"), "process: state['odd']: expected columns that are not in the key, found n"),
        (("key: [device]", "key: [device]\nsql: SELECT 1"), "found both"),
        ((", lateness: 10 seconds", ""), "streams.readings: expected `event_time` and `lateness`"),
        (("10 seconds", "-10 seconds"), "lateness: expected a duration that is not negative"),
        (("readings:", "last:"), "process: expected names of state that no stream has, found last: rename it in"),
        (("readings:", "Counters:"), "streams.Counters: expected another name than counters, timers, clock_timers: a "
         "class has such tables; rename the stream"),
        (("readings:", "timers:"), "rename the stream, or leave on_timer out of alarms.py"),
        (("def process", "def proces"), "alarms.py:7: expected a method process(self, key, rows, ctx), found none"),
        (("key, rows, ctx", "rows, ctx"), "alarms.py:11: expected process(self, key, rows, ctx), found process(self"),
        (("    def on_timer", "    @abstractmethod\n    def on_timer"), "found the abstract method on_timer"),
        (("(Base)", "(base.Base)"), "alarms.py:7: expected base classes of this module, found base.Base"),
        (("output =", "out ="), "alarms.py:7: expected `output = ...` in class Alarm, found none"),
        (("message STRING", "message TEXT"), "output: expected a type out of BOOLEAN, TINYINT"),
        (('"30 days"', "DAYS"), "alarms.py:10: expected ttl as a literal"),
        (('"30 days"}', '"1 h"}; ttl |= {}'), "alarms.py:10: expected ttl as a literal"),
        (('"30 days"}', '"1 h"}; ttl["odd"] = "1 h"'), "alarms.py:10: expected ttl as a literal"),
        (("(Base)", "(Base, Base)"), "alarms.py:7: expected base classes that Python can put in an order"),
        (("30 days", "1 month"), "ttl['last']: expected a duration"),
        (('"last": "30', '"least": "30'), "expected ttl = {'name': '30 days'} with names among last, odd, counters"),
        (("value DOUBLE", "value MAP<STRUCT<a: INT>, INT>"), "state['last']: expected maps whose keys are neither"),
        (("message STRING", "m ARRAY<MAP<INT, MAP<ARRAY<INT>, INT>>>"), "output: expected maps whose keys are neither"),
        (("value DOUBLE", "value INTERVAL"), "state['last']: expected a type out of"),
        (("value DOUBLE", "at DATE"), "state['last']: expected each column once, found at twice"),
        (("value DOUBLE", "_value DOUBLE"), "state['last']: expected columns without a leading _, found _value"),
        (('"odd"', '"Counters"'), "none of counters, timers, clock_timers, found 'Counters'"),
        (("class Base", "class Base("), "alarms.py:3: expected Python"),
        (("def process(", "def __init__(self, x): ...\n    def process("), "expected __init__(self) without further"),
        (("for row in rows", "for row in (datetime.now(), rows)"), None),
    ],
)  # fmt: skip
def test_mistakes_are_named(load: Any, folder: Path, edit: tuple[str, str], said: str | None) -> None:
    if said is None:
        assert load(edit), "a name that nothing imported is no clock"
        return
    with pytest.raises(RuleInvalid) as caught:
        load(edit)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{folder}/alarms.yaml:")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import datetime\nx = datetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as d\nx = d.date.today", "datetime.date.today"),
        ("from datetime import datetime as dt\nx = dt.utcnow()", "datetime.datetime.utcnow"),
        ("from time import time as t\nx = [t() for _ in y]", "time.time"),
        ("import time\nx = time.monotonic_ns().bit_length()", "time.monotonic_ns"),
        ("import random\nx = random.choice([1])", "random.choice"),
        ("import random\nx = random.Random(1).random()", "random.Random"),
        ("from random import choice\nx = choice([1])", "random.choice"),
        ("import numpy as np\nx = np.random.default_rng().normal()", "numpy.random.default_rng"),
        ("from uuid import uuid4\nx = str(uuid4())", "uuid.uuid4"),
        ("import os\nx = os.urandom(1)", "os.urandom"),
        ("import secrets as s\nx = s.token_hex()", "secrets.token_hex"),
        ("import pyspark.sql.functions as F\nx = F.current_timestamp()", "pyspark.sql.functions.current_timestamp"),
        ("def f():\n    from os import urandom\n    return urandom(1)", "os.urandom"),
        ("from random import *", "found *"),
        ("import time\nx = time.clock_gettime(time.CLOCK_REALTIME)", "time.clock_gettime"),
        ("import time\nx = time.gmtime()", "time.gmtime"),
        ("import time\nx = time.gmtime(None)", "time.gmtime"),
        ("import time\nx = time.gmtime(*y)", "time.gmtime"),
        ("import time\nx = time.strftime('%Y')", "time.strftime"),
        ("import time\nx = map(time.ctime, y)", "time.ctime"),
        (
            "import pandas as pd\nx = pd.Timestamp('now', tz='UTC')",
            "pandas.Timestamp('now') gives a different answer in a replay: use ctx.now",
        ),
        ("from pandas import to_datetime\nx = to_datetime(arg='today')", "pandas.to_datetime('today')"),
        ("import numpy as np\nx = np.datetime64('now')", "numpy.datetime64('now')"),
        ("import pendulum\nx = pendulum.now()", "pendulum.now"),
        ("from airflow.utils import timezone\nx = timezone.utcnow()", "airflow.utils.timezone.utcnow"),
        ("import ssl\nx = ssl.RAND_bytes(1)", "ssl.RAND_bytes gives a different answer in a replay: derive it"),
    ],
)
def test_clocks_and_randomness_are_found(text: str, found: str) -> None:
    problems = list(unstable(text, "alarms.py"))
    assert len(problems) == 1
    assert found in problems[0]
    assert problems[0].startswith("alarms.py:")


@pytest.mark.parametrize(
    "text",
    [
        "import datetime\nx = datetime.timedelta(1)",
        "import uuid\nx = uuid.uuid5",
        "now = 1\nx = now",
        "import os\nos.path",
        "import time\nx = time.strftime('%Y', time.gmtime(row['seconds']))",
        "import time as t\nx = t.ctime(1), t.localtime(1), t.asctime(y)",
        "import pandas as pd\nx = pd.Timestamp('2001-01-01'), pd.to_datetime(row['now']), pd.Timedelta('now')",
    ],
)
def test_what_a_replay_does_not_change_is_allowed(text: str) -> None:
    assert list(unstable(text, "alarms.py")) == []


CLASSES = """
from datetime import datetime
from clocks import now, date
import clocks
class Base:
    def stamp(self, ctx):
        {base}
class Mine(Base{generic}):
    def process(self, key, rows, other):
        self.now = row["now"]
        {mine}
class Theirs:
    def process(self, key, rows, ctx):
        return ctx.now
ALIAS = [Theirs]
def helper(c):
    {helper}
"""


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({}, []),
        ({"mine": "return self.now, row['now'], now"}, []),
        ({"mine": "other.now = 1"}, []),
        ({"mine": "return clocks.now, c.now"}, ["a.py:11: c.now"]),
        ({"mine": "yield from Theirs().process(key, rows, other)"}, ["a.py:14: ctx.now"]),
        ({"mine": "yield from ALIAS[0]().process(key, rows, other)"}, ["a.py:14: ctx.now"]),
        ({"mine": "helper(other)", "helper": "Theirs().process(1, 2, c)"}, ["a.py:14: ctx.now"]),
        ({"helper": "Theirs().process(1, 2, c)"}, []),
        ({"generic": "[int]", "base": "return ctx.now"}, ["a.py:7: ctx.now"]),
        (
            {"mine": "return getattr(other, 'now')", "generic": "[Theirs]"},
            ["a.py:11: getattr(other, 'now')", "a.py:14: ctx.now"],
        ),
        ({"mine": "key = date; return date.now"}, []),
        ({"mine": "return (lambda date: date.now)(other)"}, ["a.py:11: date.now"]),
        ({"mine": "date = other; return date.now"}, ["a.py:11: date.now"]),
        ({"mine": "return (other.now + x).isoformat()"}, ["a.py:11: other.now"]),
        ({"mine": "return getattr(other, 'now')"}, ["a.py:11: getattr(other, 'now')"]),
        ({"mine": "return self.ctx.now"}, ["a.py:11: self.ctx.now"]),
        ({"base": "return ctx.now"}, ["a.py:7: ctx.now"]),
        ({"helper": "return c.now"}, ["a.py:17: c.now"]),
        ({"mine": "return datetime.now()"}, ["a.py:11: datetime.datetime.now"]),
        ({"mine": "import pandas; return pandas.Timestamp('now')"}, ["a.py:11: pandas.Timestamp('now')"]),
    ],
)
def test_what_a_class_reads_of_its_epoch_is_found(texts: dict[str, str], found: list[str]) -> None:
    text = CLASSES.format(**{"base": "pass", "mine": "pass", "helper": "pass", "generic": ""} | texts)
    assert list(of_its_epoch(text, "a.py", "Mine")) == found


APART = """
import registry
from dataclasses import dataclass
STEPS = {{}}
def register(one):
    STEPS[one.__name__] = one
    return one
{before}
class Theirs{bases}:
    def process(self, key, rows, ctx):
        return ctx.now
{after}
class Mine:
    {inside}
    def process(self, key, rows, other):
        return next(iter(STEPS.values())).process(key, rows, other)
    {end}
{last}
"""

META = "class Meta(type):\n    def __init__(cls, *of): STEPS[cls.__name__] = cls\n"


@pytest.mark.parametrize(
    "texts",
    [
        {"after": 'STEPS["theirs"] = Theirs()'},
        {"after": "STEPS.update(theirs=Theirs())"},
        {"after": "STEPS |= {'theirs': Theirs()}"},
        {"after": "made = register(Theirs)"},
        {"after": "OTHERS = [Theirs]\nregistry.add(OTHERS)"},
        {"after": "def make():\n    return Theirs()\nregister(make)"},
        {"after": "@register\ndef make():\n    return Theirs()"},
        {"after": "for one in (Theirs,):\n    register(one)"},
        {"after": "class Setup:\n    registry.add(Theirs)"},
        {"before": "@register"},
        {"before": "@registry.add('theirs')"},
        {"bases": "(registry.Step, name='theirs')"},
        {"before": "class Step:\n    def __init_subclass__(cls):\n        register(cls)", "bases": "(Step)"},
        {"last": "Mine.helper = Theirs()"},
        {"inside": "steps = registry.of(Theirs)"},
        {"end": "@register\n    def helper(self, other): pass", "last": "register(lambda: Theirs())"},
        {"last": "def find(name):\n    return globals()[name]"},
        {"last": "import sys\ndef find(name):\n    return getattr(sys.modules[__name__], name)"},
        {"last": "import importlib as i\ndef find(name):\n    return getattr(i.import_module(__name__), name)"},
        {"last": "def find(name):\n    return next(map(eval, [name]))"},
        {"last": "FOUND = vars()['Theirs']"},
        {"last": "if __name__ == '__main__':\n    pass\nelse:\n    register(Theirs)"},
        {"before": f"{META}class Step(metaclass=Meta): pass", "bases": "(Step)"},
        {"before": f"{META}class Step(metaclass=Meta): pass\nclass Timed(Step): pass", "bases": "(Timed)"},
        {"before": f"{META}Step = Meta('Step', (), {{}})", "bases": "(Step)"},
        {"bases": "(registry.Step)"},
        {"bases": "(registry.Step[int])"},
        {"before": "class Step(registry.Step): pass", "bases": "(Step)"},
        {"before": "class Step: pass\nclass Step(Step, registry.Step): pass", "bases": "(Step)"},
        {"before": "def property(one):\n    STEPS[one.__name__] = one\n@property"},
    ],
)
def test_a_class_that_the_module_hands_on_is_read_too(texts: dict[str, str]) -> None:
    """Where from others get it is not known."""
    text = APART.format(**dict.fromkeys(("before", "bases", "after", "end", "last"), "") | {"inside": "pass"} | texts)
    (found,) = of_its_epoch(text, "a.py", "Mine")
    assert found.endswith(": ctx.now")


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"before": "@dataclass"},
        {"before": "@dataclass(frozen=True)"},
        {"after": "ALIAS: list[type] = [Theirs]"},
        {"after": "def make():\n    return Theirs()"},
        {"after": "class Others:\n    steps = [Theirs]\n    @property\n    def one(self):\n        return Theirs()"},
        {"last": "LOG = registry.logger('theirs')"},
        {"last": "def read(frame, row):\n    return frame.eval('a + b'), row.modules, vars(row)"},
        {"last": "def read(exec, vars):\n    return exec, vars['a']"},
        {"last": "if __name__ == '__main__':\n    registry.demo(Theirs, eval('1'), registry.ctx.now)"},
        {"before": "import attrs\n@attrs.define(frozen=True)"},
        {"before": "import functools as f\n@f.total_ordering"},
        {"before": "from pydantic.dataclasses import dataclass\n@dataclass"},
        {"before": "from typing import final\n@final"},
        {"before": "class Step: pass\nclass Timed(Step): pass", "bases": "(Timed)"},
        {"before": "class Step: pass\nclass Step(Step): pass", "bases": "(Step)"},
        {"before": "from typing import Generic, Protocol as P, T", "bases": "(P, Generic[T], object)"},
        {"before": "from abc import ABC, ABCMeta", "bases": "(ABC, metaclass=ABCMeta)"},
        {"before": "import enum", "bases": "(str, enum.Enum)"},
        {"bases": "(Exception)"},
    ],
)
def test_a_class_that_the_module_only_defines_is_another_rules(texts: dict[str, str]) -> None:
    text = APART.format(**dict.fromkeys(("before", "bases", "after", "end", "last"), "") | {"inside": "pass"} | texts)
    assert list(of_its_epoch(text, "a.py", "Mine")) == []


def test_clocks_are_refused_at_qos_2_only(load: Any) -> None:
    clock = ("for row in rows", "import time\n        for row in (time.time(), rows)")
    with pytest.raises(
        RuleInvalid, match=(r"alarms.py:13: time.time gives a different answer in a replay: use ctx.now")
    ):
        load(clock)
    assert load(clock, ("key: [device]", "key: [device]\nqos: 1"))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("[device]", "[sensor]"), "changed key;"),
        (("message STRING", "message INT"), "changed output of the class;"),
        (("value DOUBLE", "value FLOAT"), "changed state['last'] value from double to float;"),
        (("n INT", "n STRING"), "changed state['odd'] n from int to string;"),
        (("alarms:Alarm\nkey: [device]", "alarms:Alarm\nkey: [device]\ntimezone: Europe/Berlin"), "changed timezone;"),
    ],
)
def test_edits_that_stored_values_do_not_fit_are_refused(load: Any, edit: tuple[str, str], said: str) -> None:
    old = load()
    with pytest.raises(RuleChanged) as caught:
        check_edit(old, load(edit))
    assert said in str(caught.value)
    assert "floodmark reset alarms" in str(caught.value)
    assert ("declare a state of another name" in str(caught.value)) == ("changed state" in said)


@pytest.mark.parametrize(
    "edit",
    [
        ("for row in rows", "for other in rows"),
        ("n INT", "n BIGINT"),
        ("n INT", "m STRING"),
        ("value DOUBLE,", "value DOUBLE, more STRING,"),
        ('"odd"', '"even"'),
        ("30 days", "1 day"),
        ("def on_timer", "def of_timer"),
    ],
)
def test_edits_that_stored_values_fit_go_on(load: Any, edit: tuple[str, str]) -> None:
    check_edit(load(), load(edit))


def test_sql_and_a_class_do_not_take_each_others_place(load: Any) -> None:
    old = load()
    sql = load(("process: alarms:Alarm\nkey: [device]", "sql: SELECT device FROM readings"))
    for one, other in ((old, sql), (sql, old)):
        with pytest.raises(RuleChanged, match="changed sql;"):
            check_edit(one, other)


def test_key_columns_are_looked_for(load: Any) -> None:
    columns = {"at": "timestamp", "Device": "string"}
    check_columns(load(), "readings", columns)
    with pytest.raises(WrongColumn, match="expected the key column 'device', found columns at"):
        check_columns(load(), "readings", {"at": "timestamp"})
    with pytest.raises(WrongColumn, match=r"expected key column 'device' of one of the types boolean.*, found double"):
        check_columns(load(), "readings", columns | {"Device": "double"})


def test_modules_that_are_missing_are_told_by_validate(folder: Path) -> None:
    (folder / "alarms.py").write_text(f"import os\nimport no_such_module.x\n{CLASS}")
    found = CliRunner().invoke(app, ["validate", str(folder / "alarms.yaml")])
    assert found.exit_code == 2
    assert "alarms.py:2: expected a module no_such_module on the Python path, found none" in found.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [("1 / 0", "ZeroDivisionError"), ("class Alarm: pass\nimport sys\nsys.exit(0)", "SystemExit: 0")],
)
def test_a_module_that_fails_is_refused_and_leaves_nothing_behind(text: str, problem: str) -> None:
    for _ in range(2):
        with pytest.raises(RuleInvalid, match=f"alarms.py: cannot be imported: {problem}"):
            load_class(text, "alarms.py", "Alarm")


def test_an_interrupt_passes_and_leaves_no_half_module() -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            load_class("class Alarm: pass\nraise KeyboardInterrupt", "alarms.py", "Alarm")


BASES = """\
class Base:
    output, state, ttl = None, {}, {}
    output = "n INT"
    state = {"last": "v BIGINT"}
    ttl = {"last": "30 days"}
    def process(self, key, rows, ctx): pass
class Loud(Base): pass
class Short(Base):
    ttl = {"last": "1 day"}
    def on_clock(self, key, at, name, ctx): pass
class Alarm(Loud, Short): pass
"""


@pytest.mark.parametrize("bases", ["Loud, Short", "Short, Loud", "Loud", "Base", "Loud, Base, object"])
def test_a_class_is_read_as_python_makes_it(bases: str) -> None:
    text = BASES.replace("Loud, Short", bases)
    read, made = declared(text, "a.py", "Alarm"), load_class(text, "a.py", "Alarm")
    assert declared_by(made) == (read.output, _declaration(read))
    check_as_read(made, read.output, _declaration(read), "a.py")


def _declaration(read: Declared) -> Declaration:
    return Declaration(read.state, read.ttl_us, read.timers, read.clock_timers)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("Alarm.output = 'm INT'", "the output of its text, 'n int', found 'm int' after its module has run"),
        ("Alarm.state = {}", r"the state of its text, {'last': 'v bigint'}, found {}"),
        ("Base.ttl.clear(); Short.ttl.clear()", r"the ttl \(in microseconds\) of its text, {'last': 864.*}, found {}"),
        ("Alarm.on_timer = 1", "the method on_timer of its text, False, found True"),
        ("del Short.on_clock", "the method on_clock of its text, True, found False"),
        ("Alarm.state = None", "has the declarations of its text, found AttributeError: .* after its module has run"),
    ],
)
def test_what_a_statement_changes_in_a_class_that_was_read_is_refused(statement: str, problem: str) -> None:
    read, made = declared(BASES, "a.py", "Alarm"), load_class(f"{BASES}{statement}\n", "a.py", "Alarm")
    with pytest.raises(RuleInvalid, match=problem):
        check_as_read(made, read.output, _declaration(read), "a.py")


WHOLE, PAIR, PLAIN_MAP = IntegerType(), StructType().add("x", IntegerType()), MapType(IntegerType(), IntegerType())


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (MapType(PAIR, WHOLE), r"neither arrays nor structs, found m map<struct<x:int>,int>"),
        (MapType(ArrayType(WHOLE), WHOLE), r"neither arrays nor structs, found m map<array<int>,int>"),
        (ArrayType(PLAIN_MAP), r"can be sorted, found m array<map<int,int>>"),
        (MapType(WHOLE, PLAIN_MAP), r"can be sorted, found m map<int,map<int,int>>"),
        (MapType(DecimalType(3, 1), PAIR), None),
    ],
)
def test_a_class_gets_no_column_without_order_or_without_a_value_of_python(kind: DataType, problem: str | None) -> None:
    shape = Shape({"s": StructType().add("m", kind)})
    with nullcontext() if problem is None else pytest.raises(WrongColumn, match=problem):
        refuse_unfit_for_a_class(shape)


def test_two_modules_of_one_name_stay_apart() -> None:
    text = "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int' = {}\n"
    one, other = (load_class(text.format(n), "a.py", "A") for n in (1, 2))
    assert (one().x, other().x) == (1, 2)


def test_a_thread_finds_no_module_that_another_has_run_only_half(monkeypatch: pytest.MonkeyPatch) -> None:
    half, whole = Event(), Event()

    class Meeting(ModuleType):
        def pause(self) -> None:
            if not half.is_set():
                half.set()
                assert whole.wait(30)

    monkeypatch.setitem(sys.modules, "meeting", Meeting("meeting"))
    text = "import meeting\nmeeting.pause()\nclass A: pass\n"
    with ThreadPoolExecutor(1) as other:
        found = other.submit(load_class, text, "a.py", "A")
        assert half.wait(30)
        assert load_class(text, "a.py", "A").__name__ == "A"
        whole.set()
        assert found.result().__name__ == "A"


@pytest.mark.parametrize(
    "ddl",
    ["a int", "a decimal(10,2), b array<struct<x: int, y: map<string, timestamp_ntz>>>", "at timestamp, b binary"],
)
def test_declared_columns_read_back(ddl: str) -> None:
    assert text_of(columns_of(ddl)) == ddl


def test_synonyms_and_spelling() -> None:
    found = text_of(columns_of("`A` LONG,b Numeric , c DEC( 5 , 1 ),d MAP<short,REAL>,e struct<f:byte,g:date>"))
    assert found == ("A bigint, b decimal(10,0), c decimal(5,1), d map<smallint, float>, e struct<f: tinyint, g: date>")


@pytest.mark.parametrize(
    "ddl", ["", "a", "a int b", "a int,", "a: int", "1a int", "a decimal(39)", "a array<int", "a $"]
)
def test_columns_that_cannot_be_read(ddl: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        columns_of(ddl)


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ("FLOAT", {0.1: 1, 0.10000000001: 2}),
        ("DOUBLE", {2**53: 1, 2**53 + 1: 2}),
        ("TIMESTAMP_NTZ", {pd.Timestamp("2001-01-01"): 1, pd.Timestamp("2001-01-01 00:00:00.000000001"): 2}),
    ],
)
def test_no_entry_of_a_map_is_lost_as_its_key_is_rounded(keys: str, given: dict[Any, int]) -> None:
    record = Record(columns_of(f"m MAP<{keys}, INT>"))
    first = dict([*given.items()][:1])
    assert len(record.values((first,))[0]) == 1
    with pytest.raises(ValueError, match=f"m: expected a dict whose keys stay different as {keys}, found"):
        record.values((given,))


@pytest.mark.parametrize(("kind", "most"), [("decimal(38,0)", "9" * 38), ("decimal(38,38)", "0." + "9" * 38)])
def test_a_decimal_reaches_to_the_bounds_of_its_type(kind: str, most: str) -> None:
    record, bound = Record(columns_of(f"d {kind}")), Decimal(most)
    assert record.values((bound,)) == (bound,)
    assert record.values((bound.copy_negate(),)) == (bound.copy_negate(),)
    for beyond in (Decimal("1e38"), Decimal("-1e38")):
        with pytest.raises(ValueError, match="expected a Decimal that fits"):
            record.values((beyond,))


class Level(StrEnum):
    HIGH = "high"


class Day(date):
    """As pandas has its own."""


def test_a_value_is_within_an_epoch_what_the_next_one_reads() -> None:
    record = Record(columns_of("s STRING, t TIMESTAMP, n TIMESTAMP_NTZ, d DATE, m DECIMAL(4,2), f MAP<STRING, DATE>"))
    at = pd.Timestamp("2001-01-01 00:00:00.123456789", tz="CET")
    given = (Level.HIGH, at, at.tz_localize(None), Day(2001, 1, 1), Decimal("-0.00"), {Level.HIGH: Day(2001, 1, 1)})
    found = record.values(given)
    day, key = date(2001, 1, 1), "high"
    moment = datetime(2000, 12, 31, 23, 0, 0, 123456, UTC)
    assert found == ("high", moment, datetime(2001, 1, 1, 0, 0, 0, 123456), day, Decimal(0), {key: day})
    assert [type(value) for value in found] == [str, datetime, datetime, date, Decimal, dict]
    assert [(type(name), type(value)) for name, value in found[-1].items()] == [(str, date)]
    assert str(found[0]) == "high" and str(found[4]) == "0.00"
