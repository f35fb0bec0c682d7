"""Choose the files that prove a table's rows: those of its newest version, as far as their commits are known.

A commit's files are compared with the commit's digest. If they were joined into files that readers see now, these are
read in their place. Files that a later commit of the ledger's own replaced are read as long as they exist, as are that
commit's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from floodmark.audit.content.content import (
    Epochs,
    check_commit,
    check_joined,
    check_keys,
    check_same,
    unknown,
    until_unreadable,
)
from floodmark.audit.content.joined import Groups, groups
from floodmark.audit.content.vectors import altered
from floodmark.audit.effects.accounts import differing
from floodmark.audit.effects.allowed import is_rewrite
from floodmark.audit.effects.effects import Effects
from floodmark.audit.effects.undone import cancelled
from floodmark.audit.evidence import File, Finding, LogEntry, TableLog
from floodmark.audit.ledger.named import Named
from floodmark.audit.logreader import store_of


def recompute(effects: Effects, named: list[Named]) -> Iterator[Finding]:
    """Compare the files of all tables with the ledger, for every commit that has a digest."""
    epochs = {(epoch.generation, epoch.number): epoch for epoch in effects.story.epochs}
    newest = max((one.generation for one in named), default=0)
    tables: dict[str, list[Named]] = {}
    for one in named:
        of_old_state = one.generation != newest and one.table.startswith("state/")  # which is no longer read
        if not of_old_state and not effects.tables.is_gone(one):
            tables.setdefault(effects.tables.log(one.table, one.generation).address, []).append(one)
    for ones in tables.values():
        log = effects.tables.log(ones[0].table, ones[0].generation)
        with effects.notes.followed(ones[0].table):
            if log.moves is not None:
                yield from differing(ones, log, effects.notes.tally(ones[0].table))
            elif log.id is not None:  # else that has been told
                yield from _Recomputing(effects, log, ones, newest, epochs).check()


@dataclass
class _Recomputing:
    """Recomputes one table. `proven`: paths of the files whose rows are the ledger's; `reported`: of those with a
    finding that they are not, or that it is unknown; `lost`: commits that cannot be recomputed."""

    effects: Effects
    log: TableLog
    named: list[Named]
    newest: int
    epochs: Epochs
    proven: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    lost: list[Named] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        told = (one for one in self.named if one.written.get("results") is None and one.written.get("digest"))
        self._names = {one.commit: one for one in self.named}
        self._appends = {one.commit: one for one in told}
        nothing = cancelled(self.effects.story.generations, self.named[0].table, self.log.id)
        left = replace(self.log, entries=tuple(one for one in self.log.entries if one.version not in nothing))
        self._groups: Groups = groups(left, self._appends)
        self._files = self.log.newest

    def check(self) -> Iterator[Finding]:
        yield from until_unreadable(self.named[-1], self._check_vectors())
        since = max(self.effects.tables.cuts(self.named[0].table, self.log).values(), default=0)
        for one in (one for one in self.named if one.commit >= since):
            entry = self.log.at(one.commit)
            if entry is not None and entry.files_with_rows:
                yield from self._check(one, entry)
        if self.lost:
            yield _lost(self.lost)
        if self.named[0].table.startswith("state/"):  # which is rewritten as it ages
            yield from self._check_rewrites()
        else:
            yield from self._check_joinings()
            yield from self._check_unproven()
            yield from self._check_keys()

    def _check_vectors(self) -> Iterator[Finding]:
        """Check vectors of the newest version's files; one that is missing or truncated is reported without reading."""
        files = (self._files[path] for path in self.log.live if path in self._files)
        there = [one for one in files if self.log.has_vector(one.vector)]
        for what in altered(store_of(self.log.address), there):
            yield self.named[-1].finding(what)

    def _check(self, one: Named, entry: LogEntry) -> Iterator[Finding]:
        brought = {file.path for file in entry.files_with_rows}
        live = brought & self.log.live.keys()
        if live != brought and self._can_prove(one.commit):
            yield from self._check_group(one)
        elif live or one.generation == self.newest:  # else a later generation has emptied or replaced it
            yield from self._check_own(one, entry, [path for path in brought if path not in self.log.present])

    def _check_own(self, one: Named, entry: LogEntry, missing: list[str]) -> Iterator[Finding]:
        self.reported |= {file.path for file in entry.files_with_rows}
        if missing and (one.table.startswith("state/") or any(path in self.log.live for path in missing)):
            return  # state is rewritten as it ages; missing files of the newest version are reported already
        if missing and one.written.get("digest") is not None:
            self.lost.append(one)
            return
        found = self._recomputed(one, check_commit(one, self.log, entry, missing, self.epochs))
        self.proven |= set() if found else {file.path for file in entry.files_with_rows}
        yield from found

    def _check_rewrites(self) -> Iterator[Finding]:
        """Compare each rewrite's files with the digest in its commit. Those that were rewritten again may be gone."""
        for entry in (one for one in self.log.entries if is_rewrite(one, self.named[0].table)):
            digest, files = entry.metadata.get("digest"), [file.path for file in entry.files_with_rows]
            if digest is not None and files and all(path in self.log.present for path in files):
                of = replace(
                    self.named[-1],
                    epoch=entry.metadata["holds_from"],
                    written={"commit": entry.version, "digest": digest},
                    backfill=None,
                )
                yield from self._recomputed(of, check_commit(of, self.log, entry, [], {}, "the commit"))

    def _recomputed(self, one: Named, compared: Iterator[Finding]) -> list[Finding]:
        """The findings about one commit, which counts as recomputed unless something stays unknown."""
        found = list(until_unreadable(one, compared))
        self.effects.notes.tally(one.table).recomputed += not any(finding.verdict == "unknown" for finding in found)
        return found

    def _can_prove(self, commit: int) -> bool:
        """Whether the files that a commit's were joined into exist, are plain, and have only rows of the ledger's."""
        group = self._groups.of_commit.get(commit)
        if group is None or group.mixed or not group.files or not group.files <= self.log.present.keys():
            return False
        return self._plain([self._files[path] for path in group.files])

    def _plain(self, files: list[File]) -> bool:
        return self.log.plain and all(file.vector is None for file in files)

    def _check_group(self, one: Named) -> Iterator[Finding]:
        """Check a group once for all of its commits."""
        group = self._groups.of_commit[one.commit]
        self.effects.notes.tally(one.table).recomputed += 1
        if self._seen & group.commits:
            return
        self._seen |= group.commits
        self.proven |= group.files  # or reported
        mine = [self._appends[version] for version in sorted(group.commits)]
        files = [self._files[path] for path in sorted(group.files)]
        yield from until_unreadable(mine[-1], check_joined(files, mine, self.log, self.epochs))

    def _check_joinings(self) -> Iterator[Finding]:
        """Compare joined files that no digest proves with the files that they came from.

        What is not known counts as of the newest commit that was joined: an audit since then leaves it out, no other.
        """
        untold: list[tuple[str, Named]] = []
        for entry in (entry for entry in self.log.entries if entry.removed and not entry.changes):
            last = max((commit for file in entry.removed for commit in self._brought(file)), default=None)
            one = None if last is None else self._names[last]
            coming = [file for file in entry.added if file.path not in self.proven]
            if one is not None and coming:
                self.reported |= {file.path for file in coming}
                untold += ((file.path, one) for file in coming if file.path in self.log.live)
                before = [self._files.get(file.path, file) for file in entry.removed]
                yield from self._check_joining(one, before, coming)
        left = [(path, one) for path, one in untold if path not in self.proven]
        if left:
            path, newest = max(left, key=lambda one: one[1].commit)
            what = f"the rows of {len(left)} files that others were joined into, such as {path}, cannot be recomputed: "
            what += "files that they came from are gone, or cannot be distinguished"
            yield unknown(newest, what)

    def _check_joining(self, one: Named, before: list[File], after: list[File]) -> Iterator[Finding]:
        known = all(file.path in self.proven or not self._brought(file) for file in before)
        if (
            known
            and self._plain([*before, *after])
            and all(file.path in self.log.present for file in (*before, *after))
        ):
            self.proven |= {file.path for file in after}  # or reported
            yield from until_unreadable(one, check_same(before, after, one, self.log))

    def _check_unproven(self) -> Iterator[Finding]:
        """Report files that readers see, unless they are proven, reported, or of a commit that is checked elsewhere."""
        if self.log.base is None or self.effects.story.beyond:
            return
        known = self.proven | self.reported | self._elsewhere()
        for path in sorted(path for path in self.log.live if path in self._files and path not in known):
            yield self.named[-1].finding(f"readers see the file {path}, whose rows no known commit has added")

    def _elsewhere(self) -> set[str]:
        """Files of commits that the ledger does not name (allowed ones, and reported ones), and files that were made
        only of such files."""
        found = set() if self.log.base is None else {path for path, _ in self.log.base.files}
        for entry in self.log.entries:
            if entry.version not in self._names and (entry.changes or all(one.path in found for one in entry.removed)):
                found |= {file.path for file in entry.added if entry.changes or entry.removed}
        return found

    def _check_keys(self) -> Iterator[Finding]:
        """Check a sink's keys, if all of its rows were merged by one key."""
        files = [self._files[path] for path in self.log.live if path in self._files]
        key = self.effects.tables.key_of(self.named[-1].table, self.log)
        if key and len(files) == len(self.log.live) and self.log.plain and self._readable(files):
            yield from until_unreadable(self.named[-1], check_keys(files, key, self.named[-1], self.log))

    def _readable(self, files: list[File]) -> bool:
        return all(file.path in self.log.present and self.log.has_vector(file.vector) for file in files)

    def _brought(self, file: File) -> set[int]:
        """The commits that the ledger names and that may have added rows of a file."""
        return self._groups.commits(file.path) & self._names.keys()


def _lost(lost: list[Named]) -> Finding:
    last = max(lost, key=lambda one: one.commit)
    whose = f"{len(lost)} commits up to" if len(lost) > 1 else "the commit of"
    what = f"the rows of {whose} epoch {last.epoch} cannot be recomputed: some of their files were "
    return unknown(last, f"{what}replaced by later ones, and removed")
