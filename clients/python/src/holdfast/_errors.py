# SPDX-License-Identifier: Apache-2.0
"""The errors of this package. All of them are a HoldfastError."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple, Type


class Holder(NamedTuple):
    """Who holds a lock, or waits for it. All but client_id, token and identity is what the holder says of itself."""

    client_id: str = ""
    token: int = 0
    user: str = ""
    host: str = ""
    pid: int = 0
    command: str = ""
    since: str = ""
    mode: str = ""
    identity: str = ""

    @classmethod
    def of(cls, body: Optional[Mapping[str, Any]]) -> Optional["Holder"]:
        """Return the holder in an answer, None where there is none. Fields that are missing are empty."""
        if not body:
            return None
        known = {name: body[name] for name in cls._fields if body.get(name) is not None}
        return cls(**known)

    def __str__(self) -> str:
        person = self.identity or self.user or self.client_id
        place = f" on {self.host}" if self.host else ""
        process = f", {self.command} (pid {self.pid})" if self.command or self.pid else ""
        return f"{person}{place}{process}"


class HoldfastError(Exception):
    """The base of all errors of this package."""

    def __reduce__(self) -> Tuple[Any, ...]:
        """Pickle the error, say for multiprocessing, whatever arguments its class takes."""
        return _unpickled, (type(self), str(self), {k: v for k, v in self.__dict__.items() if not callable(v)})


def _unpickled(kind: Type[HoldfastError], message: str, fields: Mapping[str, Any]) -> HoldfastError:
    e = kind.__new__(kind)
    e.args = (message,)
    e.__dict__.update(fields)
    return e


class ConfigError(HoldfastError, ValueError):
    """The endpoints, the credential or an argument cannot be used. Nothing was sent."""


class NotAcquired(HoldfastError):
    """Others hold the lock or wait for it. This is no outage: the service has said so."""

    def __init__(self, message: str, lock: str, holder: Optional[Holder] = None, queue_length: int = 0) -> None:
        super().__init__(message)
        self.lock = lock
        #: The holder, the oldest of several; None if it is not known.
        self.holder = holder
        #: How many requests wait.
        self.queue_length = queue_length


class Timeout(NotAcquired, TimeoutError):
    """The wait for a lock is over, and others still hold it."""


class LockLost(HoldfastError):
    """The lock is not held any more, or may not be: what it protects must not be touched.

    A token is never revived: acquire the lock again for a new one.
    """

    def __init__(self, lock: str, token: int, reason: str) -> None:
        super().__init__(f"lock {lock!r} is lost, under token {token}: {reason}")
        self.lock = lock
        self.token = token
        self.reason = reason


class Unavailable(HoldfastError):
    """No server did what was asked for within the budget. Nothing was changed, and nothing will be.

    A request for a lock that may still be under way is cancelled in the background.
    """


class UnknownOutcome(HoldfastError):
    """It is not known whether a request was executed.

    Client.settle(error) makes that certain as soon as the service can be reached.
    """

    def __init__(self, message: str, client_id: str, request_id: int, settled: Optional[Callable[[], None]] = None) -> None:
        super().__init__(message)
        self.client_id = client_id
        self.request_id = request_id
        self._settled = settled

    def settled(self) -> None:
        """Note that the service need not remember the outcome any longer."""
        settled = getattr(self, "_settled", None)  # it is not there in another process
        if settled is not None:
            settled()


class Refused(HoldfastError):
    """The service refused a request, which did nothing; status is its word, as in docs/http.md."""

    def __init__(self, message: str, status: str, answer: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(message)
        self.status = status
        #: The whole answer.
        self.answer: Dict[str, Any] = dict(answer or {})


class InvalidArgument(Refused, ValueError):
    """The request is wrong; the message says how."""


class Unauthenticated(Refused):
    """The credential is missing, wrong, expired or revoked."""


class PermissionDenied(Refused):
    """The access rules do not allow it."""


class Limited(Refused):
    """A quota leaves no room."""


class OffsetMismatch(Refused):
    """The file does not end at the expected offset, but at self.offset."""

    @property
    def offset(self) -> int:
        return int(self.answer.get("offset") or 0)


class AlreadyDone(Refused):
    """The slot of Lock(once=...), or a later one, is done: nothing is left to do for it."""


class LockChanged(Refused):
    """Somebody was granted the lock after the token of Lock(after_token=...), or it is not known any more that nobody was."""


class OtherLimit(Refused):
    """Others hold the lock, or wait for it, with another limit than that of Lock(limit=...), or with none."""


class FileSealed(Refused):
    """The file takes no more appends."""


class FileQuarantined(Refused):
    """The file has bytes that no append wrote. Where committed, the append is in the log: do not append it again."""

    @property
    def committed(self) -> bool:
        return bool(self.answer.get("committed"))


class WrongCluster(Refused):
    """The address belongs to another cluster by now."""


_BY_STATUS: Mapping[str, Type[Refused]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "TOO_LARGE": InvalidArgument,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "LIMITED": Limited,
    "OFFSET_MISMATCH": OffsetMismatch,
    "ALREADY_DONE": AlreadyDone,
    "LOCK_CHANGED": LockChanged,
    "OTHER_LIMIT": OtherLimit,
    "FILE_SEALED": FileSealed,
    "FILE_QUARANTINED": FileQuarantined,
}


def refusal(op: str, answer: Mapping[str, Any]) -> Refused:
    """Return the error of an answer whose status is not OK."""
    status = str(answer.get("status") or "")
    message = str(answer.get("message") or "no reason given")
    subject = str(answer.get("lock") or answer.get("file") or "")
    what = f"{op} {subject!r}" if subject else op
    return _BY_STATUS.get(status, Refused)(f"{what}: {status}: {message}", status, answer)
