# SPDX-License-Identifier: Apache-2.0
"""Holdfast for Python: locks with fencing tokens, and exactly-once appends to protected files.

    from holdfast import Lock

    with Lock("reports/nightly", wait=60) as lock:
        lock.append("reports/nightly.log", b"one line\\n")

It speaks HTTP (docs/http.md) and needs nothing but the standard library. docs/python.md shows what to
take for what.

What is protected, and what is advisory: append is protected, since the service writes, and only under
the live token. Anything else is protected only if it compares tokens. A program can be stopped between
asking for Lock.held and acting on it, and no lock service can prevent what it does when it goes on.

A lease is kept alive by two threads until release or loss. Its end is counted from when the last
answered renewal was sent, less a margin, on a clock that runs while the machine sleeps and that nobody
sets: so this side gives up before the service does. Lock.held, Lock.check, on_lost and the end of a
with block say so.

Every request that changes something has an ID before its first attempt, and keeps it for every repeat,
over lost answers and failovers: it is executed at most once.
"""

from ._client import Client, Receipt, default_client
from ._election import Election
from ._errors import (
    AlreadyDone,
    ConfigError,
    FileQuarantined,
    FileSealed,
    Holder,
    HoldfastError,
    InvalidArgument,
    Limited,
    LockChanged,
    LockLost,
    NotAcquired,
    OffsetMismatch,
    OtherLimit,
    PermissionDenied,
    Refused,
    Timeout,
    Unauthenticated,
    Unavailable,
    UnknownOutcome,
    WrongCluster,
)
from ._filelock import FileLock
from ._lock import Lock
from ._transport import Abort, Aborted
from ._watch import Event

__version__ = "0.1.0"

__all__ = [
    "Abort",
    "Aborted",
    "AlreadyDone",
    "Client",
    "ConfigError",
    "Election",
    "Event",
    "FileLock",
    "FileQuarantined",
    "FileSealed",
    "Holder",
    "HoldfastError",
    "InvalidArgument",
    "Limited",
    "Lock",
    "LockChanged",
    "LockLost",
    "NotAcquired",
    "OffsetMismatch",
    "OtherLimit",
    "PermissionDenied",
    "Receipt",
    "Refused",
    "Timeout",
    "Unauthenticated",
    "Unavailable",
    "UnknownOutcome",
    "WrongCluster",
    "default_client",
]
