"""The relay: ship what a rule has committed from the outbox of a target to the target, in order.

It needs no lock where rows and position move in one transaction of the target: each relay moves the position from the
one that it has read, and the slower one fails. Where they do not, one relay ships at a time (`Alone`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.relay.alone import Alone
from floodmark.connectors.relay.aside import Aside, refusal_of
from floodmark.connectors.relay.backlogs import note_refused
from floodmark.connectors.relay.contents import columns_in, compared, rows_of, size_of, spelt_as, with_types, without
from floodmark.connectors.relay.memory import (
    Lost,
    check_home,
    recall,
    remember,
    remember_fault,
    remember_lost,
    remember_shipped,
)
from floodmark.connectors.relay.unfit import fit_rows, unfit_rows
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import PREFIX
from floodmark.core.protocol.records.rows import Row
from floodmark.core.relay.portions import MOST_ROWS, Portion, Replaced, batches, check_position, portions
from floodmark.core.relay.positions import Position
from floodmark.core.relay.redeliveries import RefusedRow, older_twins
from floodmark.core.relay.terms import check_format, sink_by, terms_at, terms_in
from floodmark.core.rules.kinds import sink_kind, targets
from floodmark.core.rules.model import Rule, Sink
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import (
    Busy,
    Fenced,
    FloodmarkError,
    InputFault,
    LedgerBroken,
    NotOwned,
    Refused,
    WrongColumn,
    message,
)
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.text.ddl import Column

# Neither another SQL nor a correction mends a row of the outbox: the target gets its portion before what comes later.
GO_ON = (
    "If the target cannot be made to take it, write `on_error: dead` at the sink: the next relay sets such rows aside, "
    "and ships all others"
)


@dataclass(frozen=True)
class Shipped:
    """What a relay has shipped: portions, their rows, and the target's position afterwards. refused: rows that the
    target refused, and that were set aside; `rows` does not count them.
    """

    portions: int
    rows: int
    position: Position
    refused: int = 0


def target_of(sink: Sink, outbox: Path | None = None) -> Target:
    """The target of a sink that is one. `outbox`: its folder; None in a look without a home."""
    kind = sink_kind(sink.kind)
    assert kind.target is not None, f"{sink.kind} has no target"
    return cast("Target", kind.target(sink, outbox))


def target_named(rule: Rule, name: str) -> Sink:
    """The rule's target with this label. Raises Refused."""
    for sink in targets(rule):
        if sink.label == name:
            return sink
    known = ", ".join(sink.label for sink in targets(rule)) or "none"
    raise Refused(f"rule {rule.rule}: expected one of its targets ({known}), found {name}")


def layout_of(sink: Sink, folder: Path) -> Layout:
    """What a target holds, by its outbox in `folder`. Raises WrongColumn if the outbox lacks a column of the key."""
    columns = columns_in(str(sink.address), folder)
    spelt = _spelt(columns)
    lacking = [name for name in (*sink.key, *filter(None, [sink.newest])) if name.lower() not in spelt]
    if lacking:
        problem = f"expected column {lacking[0]} of its `key` or `newest` in its outbox, found {', '.join(spelt)}: a "
        problem += "reset has changed the columns before all was shipped. Start over with `on_reset: empty`"
        raise WrongColumn(about_sink(str(sink.address), problem))
    key = tuple(spelt[name.lower()] for name in sink.key)
    return Layout(columns, key, sink.newest and spelt[sink.newest.lower()], sink.adds_columns)


def sink_of(ledger: LedgerReader, sink: Sink, one: Portion | None = None) -> Sink:
    """The sink by the terms of a portion; None: by those of the newest text.

    Those of the file do not count: an edit that the rule cannot follow would merge committed rows in another way.
    Raises Refused if the file has another format than the portion.
    """
    table = PREFIX + str(sink.address)
    if one is None:
        return sink_by(sink, terms_in(ledger.head.rule.to_json(), table) if ledger.head else None)
    terms = one.terms or terms_at(ledger.since(0), table, one.position.seq)
    check_format(sink, terms)
    return sink_by(sink, terms)


def _spelt(columns: Sequence[Column]) -> dict[str, str]:
    """The names of columns as a target spells them, by themselves in small letters."""
    return {one.name.lower(): one.name for one in columns}


def values_of(sink: Sink, home: Home) -> dict[str, Any] | None:
    """The schema of the values that a target's consumers get; None: they have none, or nobody knows it yet."""
    of, folder = sink_kind(sink.kind).values, home.outbox(sink)
    if of is None or folder is None or not folder.exists():
        return None
    return of(sink, columns_in(str(sink.address), folder))


def check_targets(rule: Rule, home: Home) -> None:
    """Check that each target can be reached, and is this ledger's or nobody's. Writes nothing. Raises as a relay."""
    for sink in targets(rule):
        _check_target(sink, home, lambda: LedgerReader.load(home.ledger))


def check_free_targets(rule: Rule, home: Home) -> None:
    """Check that no target of a rule that has not begun is another ledger's. Raises NotOwned.

    A target that cannot be asked stops no run: its relay asks it again, and names the reason.
    """
    for sink in targets(rule):
        try:
            _check_target(sink, home, lambda: None)
        except FloodmarkError as fault:
            if isinstance(fault, NotOwned):
                raise


def _check_target(sink: Sink, home: Home, load: Callable[[], LedgerReader | None]) -> None:
    """load: called once the position is known, which a relay may have moved to a row that is new in the ledger."""
    with closing(target_of(sink, home.outbox(sink))) as target:
        position = target.position()
    if position is not None:
        _rows_behind(target, position, load())


def _rows_behind(target: Target, position: Position, ledger: LedgerReader | None) -> list[Row]:
    """The ledger's rows after the position. Raises unless this is one of the ledger's (None: there is none yet)."""
    rows = ledger.since(position.seq - 1) if ledger and ledger.head else []
    row = next((one for one in rows if one.seq == position.seq), None)
    newest = ledger.head.seq if ledger and ledger.head else 0
    check_position(target.address, position, ledger.id if ledger else "none yet", row, newest)
    return [one for one in rows if one.seq > position.seq]


class Relay:
    """The relay of one target. `resend`: a target that was restored from a copy gets again what it lost."""

    def __init__(self, rule: Rule, sink: Sink, home: Home, resend: bool = False):
        self._rule, self._sink, self._resend = rule.rule, sink, resend
        self._folder, self._ledger_at = cast("Path", home.outbox(sink)), home.ledger
        self._target = target_of(sink, self._folder)
        self._table = PREFIX + str(sink.address)
        self._by: Sink | None = None
        self.lost, self._alone = Lost(), Alone(self._folder)
        self._aside, self._refused = Aside(str(sink.address), self._folder), set[tuple[int, int]]()
        self._twins = {str(one.address): cast("Path", home.outbox(one)) for one in targets(rule) if _alike(one, sink)}

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.close()

    def ship(self, tell: Callable[[Shipped], None] = lambda _: None) -> Shipped | None:
        """Ship all that is committed now; None if the rule has written nothing for the target yet.

        Raises what the target raises, and remembers it for `status`.
        """
        try:
            with closing(self._alone):
                return self._ship(tell)
        except Exception as fault:
            check_home(self._folder, fault)
            if not isinstance(fault, Busy):  # which says nothing of the target
                remember_fault(self._folder, str(fault))
            raise

    def _ship(self, tell: Callable[[Shipped], None]) -> Shipped | None:
        asked = self._begin()
        if asked is None:
            return None
        ledger, since, behind = asked
        found = portions(behind, self._table, since)
        done, begun = Shipped(0, 0, since), time.monotonic()
        for batch in batches(found, 0 if self._target.one_by_one else MOST_ROWS, partial(size_of, self._folder)):
            self._turn_to(sink_of(ledger, self._sink, batch[0]))
            epochs = [one.position.epoch for one in batch]
            reach(self._rule, "relay.before", *epochs)
            self._apply(batch, done.position)
            reach(self._rule, "relay.after", *epochs)
            rows, refused = sum(map(self._sent_of, batch)), sum(len(self._refused_of(one)) for one in batch)
            done = Shipped(done.portions + len(batch), done.rows + rows, batch[-1].position, done.refused + refused)
            seconds = time.monotonic() - begun
            remember_shipped(self._folder, done.position, rows, done.rows, seconds, batch[0].empties)
            tell(done)
        if not done.portions:
            remember(self._folder, since)
        note_refused(self._sink, self._aside, ledger)
        return done

    def _begin(self) -> tuple[LedgerReader, Position, list[Row]] | None:
        """The ledger, the target's position, once it can be trusted, and the rows after it; None: nothing to ship yet.

        It goes by the terms of what comes first to a target that has nothing, else by the newest. Other relays may be
        at work. So what the home remembers is read before the position, and the ledger after it:
        only what went back is then behind the first, or ahead of the second.
        """
        known, earlier = recall(self._folder).position, LedgerReader.load(self._ledger_at)
        if earlier is None or earlier.head is None or not self._folder.exists():
            return None
        if self._resend:
            self._target.accept()
        elif known is not None and known.seq and known.ledger == earlier.id and self._target.is_gone():
            self._refuse_gone(known)
        ahead = portions(earlier.since(known.seq if known else 0), self._table, known or Position(earlier.id))
        self._turn_to(sink_of(earlier, self._sink, ahead[0] if ahead and known is None else None))
        if ahead:  # a claim may end the relay that ships it
            self._be_alone()
        position = self._target.claim(earlier.id, self._layout)
        ledger = LedgerReader.load(self._ledger_at) or earlier
        rows = _rows_behind(self._target, position, ledger)
        if known is None and position.seq:
            self._refuse_shared(position)
        if known is not None and known.ledger == position.ledger and known.seq > position.seq and not self._resend:
            raise LedgerBroken(
                about_sink(
                    self._target.address,
                    f"it had {known.words}, and has {position.words} now: it was restored from a copy, or its position "
                    f"was changed. If its rows are as of that position, {self._resending} ships again what it lost",
                )
            )
        return ledger, position, rows

    @property
    def _resending(self) -> str:
        return f"`floodmark relay {self._rule} --target {self._sink.label} --resend`"

    def _refuse_gone(self, known: Position) -> None:
        problem = f"it had {known.words}, and nothing is there now: its volume may not be mounted. Nothing was made. "
        problem += f"Mount or restore it, and ship again; if it is gone for good, {self._resending} makes it anew and "
        raise LedgerBroken(about_sink(self._target.address, f"{problem}ships all that the outbox has"))

    def _refuse_shared(self, position: Position) -> None:
        """Raise NotOwned if the position is that of another sink, whose connection leads to the same place."""
        for address, folder in self._twins.items():
            if recall(folder).position == position:
                problem = f"expected a target of its own, found the one of sink {address}: both lead to the same place"
                problem += ". Name another table or topic, or have one sink with the rows of both"
                raise NotOwned(about_sink(self._target.address, problem))

    def _turn_to(self, sink: Sink) -> None:
        """Ship by the terms of this sink from here on. By equal ones, nothing is looked up again."""
        if sink != self._by:
            self._by, self._layout, self._qos = sink, layout_of(sink, self._folder), sink.qos

    def _be_alone(self) -> None:
        if min(self._qos, self._sink.qos) < 2 or not self._target.keeps_position:
            self._alone.take()

    def _apply(self, batch: Sequence[Portion], since: Position) -> None:
        """By the sink's qos: rows and position together; at 1 first the rows, at 0 first the position."""
        self._be_alone()
        upto, epochs = batch[-1].position, [one.position.epoch for one in batch]
        send = partial(self._send, partial(reach, self._rule, "relay.sent", *epochs))
        if self._qos == 2:
            return send(batch, since, upto)
        rows_first = self._qos == 1
        send(*((batch, since, since) if rows_first else ([], since, upto)))
        reach(self._rule, "relay.between", *epochs)
        if rows_first:
            return send([], since, upto)
        try:
            return send(batch, upto, upto)
        except Exception as fault:  # the position has moved: nobody sends them again
            lost = Lost(sum(map(self._sent_of, batch)), tuple(epochs), message(fault))
            self.lost = self.lost.and_(lost)
            remember_lost(self._folder, lost, batch[0].empties)
            raise

    def _send(self, sent: Callable[[], None], batch: Sequence[Portion], since: Position, upto: Position) -> None:
        """With `on_error: dead`, rows that the target refuses are set aside, and the rest is sent."""
        while True:
            self._refused = self._aside.ids()
            operations = [self._operation(one) for one in batch]
            try:
                return self._target.apply([self._fit(one) for one in operations], self._layout, since, upto, sent)
            except InputFault as fault:
                if self._sink.on_error == "stop":
                    raise InputFault(f"{fault}. {GO_ON}" if self._qos else str(fault)) from fault
                found = self._refusals(fault, operations, since)
                self._aside.add([refusal_of(one, said) for one, said in zip(operations, found, strict=False) if said])
                reach(self._rule, "relay.refused")
                if self._aside.ids() == self._refused:  # not even another relay has set any aside
                    raise
                batch, since = self._rest(fault, batch, since, upto)

    def _rest(
        self, fault: InputFault, batch: Sequence[Portion], since: Position, upto: Position
    ) -> tuple[Sequence[Portion], Position]:
        """What is to be sent still, and the position now: a class may have taken some portions, others take all."""
        if since != upto:
            now = self._target.position() or since
            if now not in (since, *(one.position for one in batch)):
                raise Fenced(
                    about_sink(
                        self._target.address,
                        f"expected its position at {since.words}, found {now.words}: another relay has moved it; ship "
                        "again",
                    )
                )
            since = now
            return [one for one in batch if one.position.seq > since.seq], since
        if fault.token:
            tokens = [one.token for one in batch]
            return batch[tokens.index(fault.token) :], since
        return batch, since

    def _refusals(
        self, fault: InputFault, operations: Sequence[Operation], since: Position
    ) -> Sequence[dict[int, str]]:
        """Those that no target holds; if there are none, those that this one cannot take."""
        columns, near = self._layout.columns, self._target.python_times
        found = [] if self._target.holds_all else [unfit_rows(one, columns, near) for one in operations]
        return found if any(found) else self._target.refused(fault, operations, self._layout, since)

    def _operation(self, one: Portion) -> Operation:
        left_out = self._left_out(one)
        count = one.rows if self._layout.key else one.rows - len(left_out)
        rows, replaces = partial(self._rows, one, left_out), one.replaces and self._spelt(one.replaces)
        return Operation(one.token, one.position, one.empties, replaces, one.whole, count, rows, left_out)

    def _fit(self, one: Operation) -> Operation:
        """With rows that stop at the first that the target cannot hold."""
        if self._target.holds_all:
            return one
        how = self._layout.columns, self._target.python_times
        return replace(one, rows=partial(fit_rows, self._target.address, one, *how))

    def _spelt(self, replaced: Replaced) -> Replaced:
        """With the column as the target spells it: the SQL may have been edited since."""
        return replace(replaced, column=spelt_as(self._target.address, replaced.column, self._layout.columns))

    def _sent_of(self, one: Portion) -> int:
        return one.rows - len(self._left_out(one))

    def _left_out(self, one: Portion) -> frozenset[int]:
        return self._refused_of(one) | self._twins_in(one)

    def _refused_of(self, one: Portion) -> frozenset[int]:
        return frozenset(number for seq, number in self._refused if seq == one.position.seq)

    def _twins_in(self, one: Portion) -> frozenset[int]:
        """A target expects each key once in a portion."""
        if not one.again or self._layout.newest is None:
            return frozenset()
        found = zip(one.again, compared(self._all_rows(one), self._layout), strict=True)
        return older_twins([RefusedRow(*at, key, gone=gone, order=order) for at, (key, order, gone) in found])

    def _rows(self, one: Portion, left_out: frozenset[int]) -> Iterator[pa.RecordBatch]:
        return without(self._all_rows(one), left_out) if left_out else self._all_rows(one)

    def _all_rows(self, one: Portion) -> Iterator[pa.RecordBatch]:
        columns = [column.name for column in self._layout.columns]
        columns += [DELETE_COLUMN] if self._layout.key else []
        found = self._aside.rows(one.again, columns) if one.again else rows_of(self._folder, one.commit, columns)
        return with_types(self._target.address, found, self._layout.columns)


def _alike(one: Sink, other: Sink) -> bool:
    """Whether two sinks of a kind differ by the name of their connection alone."""
    places = (str(sink.address).partition("://")[2].partition("/")[2] for sink in (one, other))
    return one.kind == other.kind and one.address != other.address and next(places) == next(places) != ""
