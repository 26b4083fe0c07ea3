# SPDX-License-Identifier: Apache-2.0
"""The spelling of the package filelock, for those who come from there."""

from __future__ import annotations

import os
import threading
from typing import Optional, Union

from ._client import Client
from ._errors import Timeout, NotAcquired
from ._lock import Lock


def lock_name(path: "Union[str, os.PathLike[str]]") -> str:
    """Return the name of the lock for the path of a lock file: the absolute path without its first slash.

    `holdfast flock` takes the same lock for this path. No file is made.
    """
    return os.path.abspath(os.fspath(path)).lstrip("/").replace("\\", "/")


class _OfThread(threading.local):
    """What one thread has of a FileLock."""

    def __init__(self) -> None:
        self.count = 0
        self.lock: Optional[Lock] = None


class FileLock:
    """A lock named after a file, as filelock.FileLock, for every host of the cluster:

        with FileLock("/share/table.lock", timeout=10):
            ...

    timeout is in seconds; a negative one waits for ever, as does none. As there, the same thread may
    acquire it again, and releases it as often; each thread has the lock for itself. When it is lost,
    the end of the with block raises LockLost, and is_locked is False.
    """

    def __init__(
        self, lock_file: "Union[str, os.PathLike[str]]", timeout: float = -1, *, blocking: bool = True, client: Optional[Client] = None, ttl: float = 30.0
    ) -> None:
        self._path = os.fspath(lock_file)
        self.timeout, self.blocking = timeout, blocking
        self._client, self._ttl = client, ttl
        self._mine = _OfThread()

    @property
    def lock_file(self) -> str:
        return self._path

    @property
    def lock(self) -> Lock:
        """The lock beneath, of this thread: it has the token, append and more."""
        if self._mine.lock is None:
            self._mine.lock = Lock(lock_name(self._path), client=self._client, ttl=self._ttl)
        return self._mine.lock

    @property
    def is_locked(self) -> bool:
        """Whether this thread certainly holds the lock now."""
        return self._mine.count > 0 and self.lock.held

    @property
    def lock_counter(self) -> int:
        return self._mine.count

    def acquire(
        self, timeout: Optional[float] = None, poll_interval: float = 0.05, *, blocking: Optional[bool] = None, cancel_check: None = None
    ) -> "Acquired":
        """Acquire the lock; with lock.acquire(): ... releases it. It raises Timeout.

        Nothing polls here, so poll_interval means nothing: the queue is the service's.
        """
        if self._mine.count > 0:
            self.lock.check()  # what was lost is not acquired again below
        else:
            seconds = self.timeout if timeout is None else timeout
            waits = self.blocking if blocking is None else blocking
            wait = 0.0 if not waits else None if seconds < 0 else seconds
            try:
                self.lock.acquire(wait)
            except NotAcquired as e:
                raise Timeout(str(e), e.lock, e.holder, e.queue_length) from e
        self._mine.count += 1
        return Acquired(self)

    def release(self, force: bool = False) -> None:
        """Release the lock, when it was acquired as often; with force at once."""
        if self._mine.count == 0:
            return
        self._mine.count = 0 if force else self._mine.count - 1
        if self._mine.count == 0:
            self.lock.release()

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        if self._mine.count == 0:
            return  # the block has released it
        self._mine.count -= 1
        if self._mine.count == 0:
            self.lock.__exit__(None if error is None else type(error), error, None)


class Acquired:
    """What FileLock.acquire returns: a with block that releases what it has acquired."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def __enter__(self) -> FileLock:
        return self.lock

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        self.lock.__exit__(kind, error, trace)
