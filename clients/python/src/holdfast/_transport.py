# SPDX-License-Identifier: Apache-2.0
"""One request to one server over HTTP/1.1, on connections that are kept."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from . import _clock
from ._config import Credential
from ._endpoints import Address, Trust
from ._errors import ConfigError, HoldfastError

CONNECT_TIME = 1.0  # seconds
_IDLE_TIME = 15.0  # seconds after which a connection is not used again
_OLD = 300.0  # seconds after which a connection is made anew, with the credential of then
_IDLE_MOST = 8  # connections that are kept to one server
_MAX_ANSWER = 64 << 20  # bytes
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class Unsent(Exception):
    """The attempt reached no server, and did nothing."""


class Lost(Exception):
    """There is no usable answer: the request may have been executed, or may be yet."""

    def __init__(self, message: str, silent: bool = False) -> None:
        super().__init__(message)
        #: The server said nothing in time, and the connection did not break.
        self.silent = silent


class Aborted(HoldfastError):
    """Another thread has ended the call, see Abort."""


class Abort:
    """Ends a call that another thread waits in."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._event = threading.Event()
        self._sock: Optional[socket.socket] = None

    def set(self) -> None:
        """End the call that is under way, and those that begin later."""
        with self._mutex:
            self._event.set()
            if self._sock is not None:
                try:  # that of a TLS socket would touch what the other thread reads
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended already

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    def attach(self, sock: socket.socket) -> None:
        with self._mutex:
            if self._event.is_set():
                raise Unsent("the call was ended")
            self._sock = sock

    def detach(self) -> None:
        with self._mutex:
            self._sock = None


class Reply(NamedTuple):
    """The answer of a server."""

    code: int
    headers: Mapping[str, str]
    raw: bytes

    def body(self) -> Dict[str, Any]:
        """Return the JSON object with its status. It raises Lost if this is none: a proxy may have answered."""
        try:
            body = json.loads(self.raw)
            if isinstance(body["status"], str):
                return dict(body)
        except (ValueError, KeyError, TypeError):
            pass
        raise Lost(f"the answer with code {self.code} is not Holdfast's: {self.raw[:100]!r}")


def parse_duration(text: Any) -> float:
    """Return the seconds of a duration such as 1m30s; 0 for a field that is empty or missing."""
    if not text:
        return 0.0
    parts = re.findall(r"([0-9]+(?:\.[0-9]*)?)(h|ms|m|s|us|µs|ns)", str(text))
    if "".join(n + u for n, u in parts) != text:
        return 0.0
    return sum(float(n) * _UNITS[u] for n, u in parts)


def duration(seconds: float) -> str:
    """Return a duration as the service takes it, in whole milliseconds."""
    return f"{round(seconds * 1000)}ms"


class Connection(http.client.HTTPConnection):
    """A connection to a server that was made, and is never made anew by itself."""

    def __init__(self, address: Address, sock: socket.socket, bearer: str) -> None:
        super().__init__(address.host, address.port or None)
        self.sock = sock
        self.auto_open = 0
        self.bearer = bearer
        self.born = self.since = _clock.now()  # when it was made, and when it became idle

    def usable(self) -> bool:
        """Report whether an idle connection is young, and was not closed by the other side."""
        at = _clock.now()
        if self.sock is None or at - self.since > _IDLE_TIME or at - self.born > _OLD:
            return False
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            return not poll.poll(0)
        return not select.select([self.sock], [], [], 0)[0]


class Transport:
    """Sends requests to servers. Safe for use by several threads."""

    def __init__(self, trust: Trust, credential: Credential) -> None:
        self._trust, self._credential = trust, credential
        self._mutex = threading.Lock()
        self._idle: Dict[Address, List[Connection]] = {}

    def forked(self) -> None:
        """Close the connections in a process that was forked: they are its parent's, which goes on using them."""
        self._mutex = threading.Lock()
        self.close()

    def connect(self, address: Address, timeout: float) -> Connection:
        """Make a connection. It raises Unsent, or ConfigError if a credential must not be sent on it."""
        try:
            made = self._trust.connect(address, min(timeout, CONNECT_TIME))
        except ConfigError:
            raise
        except OSError as e:
            raise Unsent(f"{address}: {e}") from e
        try:
            bearer = self._credential(made.cluster)
            if bearer and not made.private:
                raise ConfigError(
                    f"{address}: a credential is sent over TLS, or to this host, only: use the path of the volume, "
                    "or what holdfast join prints, as the endpoint"
                )
        except BaseException:
            made.sock.close()
            raise
        return Connection(address, made.sock, bearer)

    def _take(self, address: Address, timeout: float) -> Connection:
        while True:
            with self._mutex:
                idle = self._idle.get(address)
                c = idle.pop() if idle else None
            if c is None:
                return self.connect(address, timeout)
            if c.usable():
                return c
            c.close()

    def _keep(self, address: Address, c: Connection) -> None:
        c.since = _clock.now()
        with self._mutex:
            idle = self._idle.setdefault(address, [])
            if c.sock is not None and len(idle) < _IDLE_MOST:
                idle.append(c)
                return
        c.close()

    def exchange(
        self,
        address: Address,
        method: str,
        path: str,
        headers: Mapping[str, str],
        data: Optional[bytes],
        timeout: float,
        abort: Optional[Abort] = None,
    ) -> Reply:
        """Send a request and return the answer. It raises Unsent or Lost."""
        c = self._take(address, timeout)
        try:
            sock = c.sock
            sock.settimeout(timeout)
            if abort is not None:
                abort.attach(sock)
            try:
                reply = self._send(c, method, path, headers, data)
            finally:
                if abort is not None:
                    abort.detach()
        except socket.timeout as e:
            c.close()
            raise Lost(f"{address}: no answer within {timeout:.1f} s", silent=True) from e
        except (OSError, http.client.HTTPException) as e:
            c.close()
            raise Lost(f"{address}: the connection broke: {e!r}") from e
        except BaseException:
            c.close()
            raise
        self._keep(address, c)
        return reply

    def _send(self, c: Connection, method: str, path: str, headers: Mapping[str, str], data: Optional[bytes]) -> Reply:
        c.request(method, path, body=data, headers=with_bearer(headers, c))
        response = c.getresponse()
        raw = response.read(_MAX_ANSWER)
        if not response.isclosed():
            raise HoldfastError(f"the answer has more than {_MAX_ANSWER} bytes: ask for less, such as a file in pieces, with offset and limit")
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, raw)

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._mutex:
            all_, self._idle = [c for idle in self._idle.values() for c in idle], {}
        for c in all_:
            c.close()


def with_bearer(headers: Mapping[str, str], c: Connection) -> Dict[str, str]:
    """Return the headers, with the credential of the connection."""
    return {**headers, "Authorization": "Bearer " + c.bearer} if c.bearer else dict(headers)
