# SPDX-License-Identifier: Apache-2.0
"""Keeps leases alive, and ends the locks whose lease may have ended."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from . import _clock
from ._errors import HoldfastError, LockLost, UnknownOutcome

if TYPE_CHECKING:
    from ._client import Answer, Client, Identity

log = logging.getLogger("holdfast")

_TICK = 0.050  # seconds: leases are not checked more often
_HELD_UNKNOWN = (1 << 32) - 1  # a number of locks that no client holds: the service then lists those that it has


class Grant:
    """One holding of a lock. Its end is final: a token is never revived."""

    def __init__(self, lock: str, token: int, who: "Identity", lease: _clock.Lease, on_lost: Optional[Callable[[LockLost], None]]) -> None:
        self.lock, self.token, self.who = lock, token, who
        self._on_lost = on_lost
        self._mutex = threading.Lock()
        self._lease = lease
        self._ended: Optional[HoldfastError] = None
        self.over = threading.Event()
        self._pid = os.getpid()
        # Of Lock.done, and of its mutex: it was called; the service has marked the slot; what became of its request is not known.
        self.marking = self.marked = False
        self.unsure: Optional[UnknownOutcome] = None

    @property
    def foreign(self) -> bool:
        """Whether it is that of the process which has forked this one."""
        return self._pid != os.getpid()

    def extend(self, sent: float, left: float) -> None:
        with self._mutex:
            self._lease.extend(sent, left)

    def lease(self) -> Tuple[float, float, float]:
        """Return the TTL, the deadline, and when the jeopardy begins."""
        with self._mutex:
            return self._lease.ttl, self._lease.deadline, self._lease.half

    def ended(self) -> Optional[HoldfastError]:
        """Return why the lock is not held any more, None while it certainly is.

        The clock decides, whatever the threads of this process are doing: where the lease may have
        ended, this ends the lock.
        """
        with self._mutex:
            if self._ended is None and not self._lease.over(_clock.now()):
                return None
            ended = self._ended
        return ended or self.lose("no renewal was answered in time: the lease may have ended")

    def lasts(self) -> bool:
        """Report whether the lease certainly lasts; this never ends the lock."""
        with self._mutex:
            return self._ended is None and not self._lease.over(_clock.now())

    def left(self) -> float:
        """Return for how many seconds more the lock is certainly held."""
        with self._mutex:
            return self._lease.left(_clock.now()) if self._ended is None else 0.0

    def lose(self, reason: str, quietly: bool = False) -> HoldfastError:
        """End the lock, unless it has ended, and return why it did."""
        lost = LockLost(self.lock, self.token, reason)
        if not self._end(lost):
            return self._ended or lost
        if not quietly:
            log.warning("%s", lost)
            if self._on_lost is not None:
                try:
                    self._on_lost(lost)
                except Exception:  # a callback's mistake must not end what keeps other locks
                    log.exception("on_lost of lock %r failed", self.lock)
        return lost

    def disown(self, reason: str) -> None:
        """End the lock in a process that was forked, where any mutex may be held by a thread that is not there."""
        self._mutex, self.over = threading.Lock(), threading.Event()
        self.lose(reason, quietly=True)

    def release(self) -> bool:
        """End the lock because its holder gives it back; False if it had ended."""
        return self._end(HoldfastError(f"lock {self.lock!r} was released"))

    def _end(self, why: HoldfastError) -> bool:
        with self._mutex:
            if self._ended is not None:
                return False
            self._ended = why
        self.over.set()
        return True


class Keeper:
    """Has two threads while there is anything to keep: one looks at the clock and never blocks, one asks the service."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._cond = threading.Condition()
        self._grants: Dict[int, Grant] = {}  # by token
        self._leaving: Set[int] = set()  # tokens that are being released
        self._expecting: Dict[str, int] = {}  # by lock: requests that may end in a grant
        self._places: List[Tuple["Identity", float]] = []  # waits, with their TTL
        self._due = 0.0
        self._running = False
        self._closed = False

    # What is kept

    def add(self, grant: Grant) -> None:
        with self._cond:
            self._grants[grant.token] = grant
            self._start(grant.lease()[0])

    def remove(self, grant: Grant) -> None:
        """Forget a grant that has ended."""
        with self._cond:
            if self._grants.pop(grant.token, None) is None:
                return
        self._client.leave(grant.who)

    def leaving(self, token: int) -> Callable[[], None]:
        """Note that a token is being released, until the returned function is called: its grant is no stray."""
        with self._cond:
            self._leaving.add(token)

        def left() -> None:
            with self._cond:
                self._leaving.discard(token)

        return left

    def expect(self, who: "Identity", lock: str, place: float = 0) -> Callable[[], None]:
        """Note a request that may be granted a lock, until the returned function is called.

        With place, the TTL of one that waits, its place in the queue is kept alive.
        """
        with self._cond:
            self._expecting[lock] = self._expecting.get(lock, 0) + 1
            if place:
                self._places.append((who, place))
                self._start(place)

        def undo() -> None:
            with self._cond:
                self._expecting[lock] -= 1
                if not self._expecting[lock]:
                    del self._expecting[lock]
                if place:
                    self._places.remove((who, place))

        return undo

    def _start(self, ttl: float) -> None:
        """Have a lease of this TTL renewed in time. Called with the mutex."""
        at = _clock.now() + ttl / 3
        if not self._running or at < self._due:
            self._due = at
        if not self._running and not self._closed:
            self._running = True
            for work, name in ((self._watch_clock, "clock"), (self._renew, "keep-alive")):
                threading.Thread(target=work, name="holdfast " + name, daemon=True).start()
        self._cond.notify_all()

    # The threads

    def _watch_clock(self) -> None:
        while True:
            with self._cond:
                if self._closed:
                    return
                grants = list(self._grants.values())
                pause = 1.0 if grants else None
                for g in grants:
                    ttl, deadline, _ = g.lease()
                    # A timer stands still while the machine sleeps, the clock does not: so it is read often.
                    pause = min(pause or 1.0, max(0.001, deadline - _clock.now()), max(_TICK, ttl / 20))
                self._cond.wait(pause)
            for g in grants:
                if g.ended() is not None:
                    self.remove(g)

    def _renew(self) -> None:
        while True:
            with self._cond:
                while not self._closed and (not self._ttls() or _clock.now() < self._due):
                    self._cond.wait(min(max(0.001, self._due - _clock.now()), 1.0) if self._ttls() else None)
                if self._closed:
                    return
                ttl = min(self._ttls())
                self._due = _clock.now() + ttl / 3 * (1 - self._client.rand() / 10)
                busy = list({id(who): who for who in [g.who for g in self._grants.values()] + [w for w, _ in self._places]}.values())
            for who in busy:
                if who.client_id:
                    self._renew_identity(who, ttl)

    def _ttls(self) -> List[float]:
        return [g.lease()[0] for g in self._grants.values()] + [ttl for _, ttl in self._places]

    def _renew_identity(self, who: "Identity", ttl: float) -> None:
        try:
            self.keep_alive(who, ttl)
        except HoldfastError as e:
            log.warning("leases could not be renewed: %s", e)
            with self._cond:
                self._due = min(self._due, _clock.now() + min(1.0, ttl / 10))
        except Exception:  # whatever it is, the other leases are to be renewed
            log.exception("leases could not be renewed")

    def keep_alive(self, who: "Identity", ttl: float) -> None:
        """Renew all leases of an identity, and end the locks that the service does not have any more."""
        with self._cond:
            asked = [g for g in self._grants.values() if g.who is who]
        attempt = min(self._client.attempt, max(0.25, ttl / 6))
        fields = {"client_id": who.client_id, "held": _HELD_UNKNOWN}
        a = self._client.ask("keepalive", fields, attempt=attempt, budget=max(0.5, ttl / 3))
        if a.status == "STALE_REQUEST":
            self._client.forget(who)
            for g in asked:
                g.lose("the service has forgotten this client")
                self.remove(g)
            return
        if a.status != "OK":
            log.warning("leases could not be renewed: %s: %s", a.status, a.text("message"))
            return
        self._settle(asked, a)
        for lock, token in self._strays(a):
            log.warning("lock %r is released: this client holds it under token %d without knowing it", lock, token)
            left = self.leaving(token)
            self._client.later(lambda lock=lock, token=token, left=left: self._release_stray(who, lock, token, left), "release")  # type: ignore[misc]

    def _settle(self, asked: List[Grant], a: "Answer") -> None:
        """Renew what was asked for and is still held, counted from when the question was sent."""
        granted = {int(g.get("token") or 0) for g in _grants(a.body)}
        for g in asked:
            if g.ended() is None:  # a lease that ended before the answer was read is not renewed by it
                if g.token in granted:
                    g.extend(a.sent, g.lease()[0])
                else:
                    g.lose("the service has ended it: it was broken, or no renewal reached the service in time")
            if g.ended() is not None:
                self.remove(g)

    def _strays(self, a: "Answer") -> List[Tuple[str, int]]:
        """Return the grants that have no holder in this process, no open request and no release under way."""
        listed = [(str(g.get("lock") or ""), int(g.get("token") or 0)) for g in _grants(a.body)]
        with self._cond:
            return [(lock, t) for lock, t in listed if t not in self._grants and t not in self._leaving and not self._expecting.get(lock)]

    def _release_stray(self, who: "Identity", lock: str, token: int, left: Callable[[], None]) -> None:
        try:
            self._client.let_go(who, lock, token)
        finally:
            left()

    # The end

    def abandon_all(self, reason: str) -> None:
        """End all locks on this side only, without a word. The threads of the parent are not in a process that was forked."""
        for g in list(self._grants.values()):
            g.disown(reason)

    def close(self, until: float) -> None:
        """Release all locks, and keep nothing any more."""
        with self._cond:
            grants = list(self._grants.values())
        for g in grants:
            if g.release():
                left = max(0.05, until - _clock.now())
                try:
                    self._client.request("release", {"lock": g.lock, "token": g.token}, identity=g.who, budget=left)
                except HoldfastError as e:
                    log.warning("lock %r could not be released and ends with its lease: %s", g.lock, e)
            self.remove(g)
        with self._cond:
            self._closed = True
            self._cond.notify_all()


def _grants(body: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    return list(body.get("grants") or [])
