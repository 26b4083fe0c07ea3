# SPDX-License-Identifier: Apache-2.0
"""Elects one of many processes."""

from __future__ import annotations

import logging
from typing import Callable, Optional, TypeVar

from ._client import Client
from ._errors import Holder, HoldfastError, LockLost, NotAcquired, Unavailable
from ._lock import Lock
from ._transport import Abort, Aborted

log = logging.getLogger("holdfast")

T = TypeVar("T")


class Election:
    """Runs work in one of the processes that stand in it, and in another one when that ends.

        def lead(term):
            while not term.wait_lost(1.0):      # a pause of a second, or less if the term ends
                step(term.token)

        Election("billing/leader").run(lead)

    The Lock that work gets is its term. It ends on this side before the service can elect another:
    work must return then. What it does after that is protected only if tokens are compared.
    """

    def __init__(self, name: str, *, client: Optional[Client] = None, ttl: float = 10.0, metadata: str = "") -> None:
        self._lock = Lock(name, client=client, ttl=ttl, metadata=metadata)
        self._stop = Abort()

    def run(self, work: Callable[[Lock], T]) -> Optional[T]:
        """Stand in the election until work returns while it leads, and return what it returned; None after stop.

        After a lost term it stands again, also while no server answers. An error of work ends it.
        """
        while not self._stop.is_set():
            try:
                self._lock.acquire(None, abort=self._stop)
            except (Unavailable, NotAcquired) as e:
                log.warning("election %r: %s", self._lock.name, e)
                continue
            except Aborted:
                break
            done = False
            try:
                result = work(self._lock)
                done = self._lock.held
            finally:
                self._resign()
            if done:
                return result
        return None

    def _resign(self) -> None:
        try:
            self._lock.release()
        except LockLost:
            log.warning("election %r: the term was lost, standing again", self._lock.name)
        except HoldfastError as e:
            log.warning("election %r: the term ends with its lease: %s", self._lock.name, e)

    def stop(self) -> None:
        """Do not stand again; a wait ends at once. Work that leads goes on until it returns: it may look at stopped."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether stop was called."""
        return self._stop.is_set()

    def leader(self) -> Optional[Holder]:
        """Return who leads now, None if nobody does."""
        return self._lock.client.holder(self._lock.name)
