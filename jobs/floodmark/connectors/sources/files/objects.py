"""The files of a folder in an object store that speaks S3, by a client without a JVM.

An object is whole once it is listed, and its ETag is another one once its content is.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from html import unescape
from io import SEEK_CUR, SEEK_SET, BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.files.folder import UNMARKED, Content, File, Listing, Wanted, check_name, is_hidden
from floodmark.errors import FloodmarkError, NotThereYet, Refused, RunFailed

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

FEW = 16  # objects: to ask for each of more costs as much as a listing of a thousand
AHEAD = 1 << 20  # bytes that are read at once
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
_INSTANCE = "169.254.169.254"  # where the client asks for keys if the environment has none


def store_at(what: str, address: str) -> ObjectStore:
    """The store below an address, with the keys and settings of the environment. Raises Refused."""
    try:
        from obstore.store import S3Store
    except ImportError as fault:
        raise Refused(
            f"{what}: expected the package obstore, found none: pip install 'FLOODMARK.whl[objects]'"
        ) from fault
    bucket, _, folder = address.partition("://")[2].partition("/")
    client: Any = {"timeout": "30s", "connect_timeout": "5s", "allow_http": _allows_http()}
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise Refused(f"{what}: expected http:// or https:// and a host in AWS_ENDPOINT_URL, found {endpoint!r}")
    with explained(what, address):
        return S3Store(bucket, prefix=folder or None, client_options=client, retry_config=_RETRIES)


def _allows_http() -> bool:
    """As delta-rs reads it, which the same environment sets up."""
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "on", "yes", "y")


class ObjectFolder:
    """`what`: the stream, for messages. `store`: of the objects below the address."""

    checksum = "ETag"

    def __init__(self, what: str, address: str, store: ObjectStore):
        self._what, self.address, self._store = what, address, store

    def files(self, wanted: Wanted) -> Listing:
        listed = [(*one["path"].rpartition("/"), one) for one in self._listed(wanted.recursive)]
        names: dict[str, dict[str, ObjectMeta]] = defaultdict(dict)
        for folder, _, name, one in listed:
            names[folder][name] = one
        marked = {folder: _modified(found[wanted.done]) for folder, found in names.items() if wanted.done in found}
        found = [
            (one, wanted.is_complete(name, names[folder], _modified(one), _newest(marked, folder)))
            for folder, _, name, one in listed
            if wanted.is_wanted(name) and not any(map(is_hidden, one["path"].split("/"))) and self._is_file(one)
        ]
        complete = [self._file(one) for one, is_complete in found if is_complete]
        return Listing(complete, [_described(one) for one, is_complete in found if not is_complete])

    def _is_file(self, found: ObjectMeta) -> bool:
        """Whether it is no marker of a folder: an empty object whose key ends with `/`, which the client leaves out."""
        return found["size"] > 0 or (found["path"] != "" and self._at(found["path"]) is not None)

    def _listed(self, recursive: bool) -> Sequence[ObjectMeta]:
        import obstore

        with explained(self._what, self.address):
            if recursive:
                return obstore.list(self._store).collect()
            return obstore.list_with_delimiter(self._store)["objects"]

    def _file(self, found: ObjectMeta) -> File:
        path, tag = found["path"], found["e_tag"]
        check_name(self._what, path)
        if tag is None:
            raise Refused(
                f"{self._what}: expected an ETag of each object, found none of {path} at {self.address}: without it "
                "nothing tells whether an object was changed. Use a store that has ETags"
            )
        return _described(found)

    def present(self, paths: Iterable[str]) -> dict[str, File]:
        wanted = set(paths)
        if len(wanted) > FEW:
            found = (self._file(one) for one in self._listed(recursive=True) if one["path"] in wanted)
        else:
            found = (file for file in map(self._at, wanted) if file is not None)
        return {file.path: file for file in found}

    def _at(self, path: str) -> File | None:
        import obstore

        try:
            with explained(self._what, self.address, FileNotFoundError):
                return self._file(obstore.head(self._store, path))
        except FileNotFoundError:
            return None

    def sum_of(self, file: File) -> str:
        return str(file.id)

    def is_as_listed(self, file: File) -> bool:
        return True  # the checksum comes from the listing itself

    def content(self, path: str) -> Content:
        return Content(f"{self.address}/{path}", lambda: BufferedReader(_Object(self, path), AHEAD))

    def read(self, path: str, start: int, size: int) -> bytes:
        import obstore

        with explained(self._what, self.address):
            return bytes(obstore.get_range(self._store, path, start=start, length=size))

    def size(self, path: str) -> int:
        found = self._at(path)
        if found is None:
            raise FileNotFoundError(path)
        return found.size


def _described(found: ObjectMeta) -> File:
    at = _modified(found)
    return File(found["path"], found["size"], at, at, (found["e_tag"] or "").strip('"'))


def _modified(found: ObjectMeta) -> int:
    """In whole seconds: some stores list parts of them, too, but say none of an object alone."""
    return int(found["last_modified"].timestamp()) * 1_000_000_000


def _newest(marked: Mapping[str, int], folder: str) -> int:
    """When the newest marker in a folder above was modified."""
    return max((marked.get(one, UNMARKED) for one in _above(folder)), default=UNMARKED) if marked else UNMARKED


def _above(folder: str) -> Iterator[str]:
    """The folders that hold a folder, up to the stream's."""
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


class _Object(RawIOBase):
    """An object as a file that can be read from any place."""

    def __init__(self, folder: ObjectFolder, path: str):
        self._folder, self._path, self._at, self._size = folder, path, 0, folder.size(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        before = {SEEK_SET: 0, SEEK_CUR: self._at}.get(whence, self._size)
        self._at = before + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._size - self._at)
        if size <= 0:
            return 0
        buffer[:size] = self._folder.read(self._path, self._at, size)
        self._at += size
        return size


@contextmanager
def explained(what: str, address: str, *answered: type[Exception]) -> Iterator[None]:
    """Errors of the store as ours, which say whether a retry can help. `answered`: those that the caller handles."""
    from obstore.exceptions import BaseError

    try:
        yield
    except answered:
        raise
    except (BaseError, FileNotFoundError) as fault:
        kind, remedy = _remedy(str(fault))
        raise kind(f"{what}: {address} cannot be accessed: {_reason(str(fault))}. {remedy}") from None


def _remedy(text: str) -> tuple[type[FloodmarkError], str]:
    """How to go on after an error of the client, whose texts are all that tells them apart."""
    if _INSTANCE in text:
        return Refused, "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: the environment has none, nor this machine"
    if "builder error" in text:
        return Refused, "Set AWS_ALLOW_HTTP=true if AWS_ENDPOINT_URL begins with http://"
    if "NoSuchBucket" in text:
        return NotThereYet, "Create the bucket, or correct the path; a retry checks again"
    if re.search("AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocation", text):
        return Refused, "Set AWS_REGION to the region of the bucket"
    if re.search("ExpiredToken|TokenRefreshRequired", text):
        return RunFailed, "Renew AWS_SESSION_TOKEN and the keys that belong to it, or let the machine's role give them"
    if "RequestTimeTooSkewed" in text:
        return RunFailed, "Set the clock of this machine, then retry"
    if re.search("status code: (401|403)|UserNotFound|InvalidAccessKeyId|InvalidToken", text):
        return Refused, "Correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give them the right to list and read"
    if "path segment" in text:
        return Refused, "Rename the object: no part of a name between slashes may be empty; or read another folder"
    return RunFailed, "Check AWS_ENDPOINT_URL and whether the store is up, then retry"


def _reason(text: str) -> str:
    """What the store says; else what the client says, without its trace."""
    found = re.search("<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", text, re.DOTALL)
    said = ": ".join(filter(None, found.groups())) if found else text.partition("\n\nDebug source")[0]
    return unescape(" ".join(said.split())).rstrip(".")[:300]
