# SPDX-License-Identifier: Apache-2.0
"""A watch: what happens to locks, as server-sent events from any server that is up."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import urlencode

from . import _clock
from ._errors import Holder, Unavailable, refusal
from ._transport import Abort, Aborted, Lost, Reply, Unsent, parse_duration, with_bearer

if TYPE_CHECKING:
    from ._client import Client

_SILENCE = 25.0  # seconds without a byte after which a server is left: each shows every ten that it lives
_AGAIN = ("SECONDARY_MODE", "SERVER_FENCING", "NO_QUORUM", "STORAGE_UNAVAILABLE", "UNKNOWN", "CANCELLED")


class Event(NamedTuple):
    """Something that has happened to a lock or a protected file.

    The kind reset is no event but the state: locks has all of them, and what was known before is to
    be dropped. The other kinds are those of docs/http.md, such as grant, release and append.
    """

    kind: str
    lsn: int
    lock: str = ""
    token: int = 0
    client_id: str = ""
    time: str = ""
    holder: Optional[Holder] = None
    file: str = ""
    offset: int = 0
    length: int = 0
    actor: str = ""
    reason: str = ""
    locks: Tuple[Mapping[str, Any], ...] = ()
    #: The whole message.
    raw: Mapping[str, Any] = {}


def event_of(body: Mapping[str, Any], locks: Sequence[Mapping[str, Any]] = ()) -> Event:
    """Return the event in a message. Fields that are missing are empty."""
    texts = {k: str(body.get(k) or "") for k in ("lock", "client_id", "time", "file", "actor", "reason")}
    numbers = {k: int(body.get(k) or 0) for k in ("lsn", "token", "offset", "length")}
    values: Dict[str, Any] = {**texts, **numbers, "holder": Holder.of(body.get("holder")), "locks": tuple(locks), "raw": body}
    return Event(kind=str(body.get("kind") or ""), **values)


class _Stream:
    """Reads server-sent events from one connection."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def messages(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Yield the id and the data of each message; the data is empty where only the id moves. It raises Lost at the end."""
        last, data = "", ""
        while True:
            line = self._response.readline(16 << 20)
            if not line.endswith(b"\n"):
                raise Lost("the stream of events has ended")
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            name, _, value = text.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if not text:
                yield last, json.loads(data) if data else {}
                data = ""
            elif name == "id":
                last = value
            elif name == "data":
                data += value


class _Watch:
    """One watch over all its connections."""

    def __init__(self, client: "Client", parameters: Mapping[str, str], after: Optional[int], abort: Optional[Abort]) -> None:
        self._client, self._abort = client, abort
        self._path = "/v1/watch" + ("?" + urlencode(parameters) if parameters else "")
        self._last = "" if after is None else str(after)  # where to resume
        self._parts: List[Mapping[str, Any]] = []  # of a reset that is not complete
        self.heard = _clock.now()

    def connection(self) -> Iterator[Event]:
        """Yield events from one server. It raises Unsent, Lost, or a refusal that is final."""
        address = self._client.servers.current()
        c = self._client.transport.connect(address, self._client.attempt)
        try:
            if self._abort is not None:
                self._abort.attach(c.sock)
            c.sock.settimeout(_SILENCE)
            more = {"Accept": "text/event-stream", **({"Last-Event-ID": self._last} if self._last else {})}
            c.request("GET", self._path, headers=with_bearer(self._client.headers(more), c))
            response = c.getresponse()
            if response.status != 200:
                self._refused(Reply(response.status, {}, response.read()).body())
            for last, body in _Stream(response).messages():
                self.heard = _clock.now()
                yield from self._message(last, body)
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise Lost(f"{address}: the watch broke: {e!r}") from e
        finally:
            if self._abort is not None:
                self._abort.detach()
            c.close()

    def _message(self, last: str, body: Mapping[str, Any]) -> Iterator[Event]:
        kind = body.get("kind")
        if kind == "end":
            self._refused(body)
        if last:
            self._last = last
        if kind == "reset":
            reset = body.get("reset") or {}
            if not reset.get("part"):
                self._parts = []
            self._parts += reset.get("locks") or []
            if reset.get("last"):
                yield event_of(body, self._parts)
                self._parts = []
        elif kind and kind != "bookmark":
            yield event_of(body)

    def _refused(self, body: Mapping[str, Any]) -> None:
        status, retry_after = str(body.get("status") or ""), parse_duration(body.get("retry_after"))
        if status in _AGAIN or status == "LIMITED" and retry_after > 0:
            time.sleep(min(retry_after, 5.0))
            raise Lost(f"the watch was ended: {status}: {body.get('message') or ''}")
        raise refusal("watch", body)


def watch(
    client: "Client", lock: str, prefix: str, after: Optional[int], kinds: Sequence[str], abort: Optional[Abort] = None
) -> Iterator[Event]:
    """Yield events; see Client.watch."""
    named = {"lock": lock, "prefix": prefix, "kinds": ",".join(kinds)}
    w = _Watch(client, {k: v for k, v in named.items() if v}, after, abort)
    failures = 0
    while True:
        address, heard = client.servers.current(), w.heard
        try:
            yield from w.connection()
        except (Unsent, Lost) as e:
            if abort is not None and abort.is_set():
                raise Aborted("the watch was ended") from None
            failures = 0 if w.heard != heard else failures + 1
            if _clock.now() - w.heard > client.budget:
                raise Unavailable(f"watch: no server answered within {client.budget:.1f} s: {e}") from e
            client.servers.leave(address)
            time.sleep(client.rand() * min(0.25, 0.010 * 2 ** min(failures, 16)))
