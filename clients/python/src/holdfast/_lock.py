# SPDX-License-Identifier: Apache-2.0
"""Locks: acquire, wait, hold, append, release."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Any, Callable, Dict, Mapping, Optional, Type, Union

from . import _clock
from ._client import Answer, Client, Identity, Receipt, default_client, describe, receipt
from ._errors import ConfigError, HoldfastError, Holder, LockLost, NotAcquired, Timeout, Unavailable, UnknownOutcome, refusal
from ._keeper import Grant
from ._transport import Abort, duration, parse_duration

log = logging.getLogger("holdfast")

#: Stands for the wait that was given to the constructor.
AS_MADE: Any = object()

_TOKEN_REFUSED = ("INVALID_TOKEN", "LEASE_EXPIRED", "STALE_REQUEST")
_LATE_RENEWALS = 5  # how often a grant is renewed whose answer came too late
_GIVE_BACK = 5.0  # seconds for which the end of a with block looks for a server
_UNMARKED = "the server is of an older version, which does not know what a lock remembers: upgrade all servers, then type holdfast upgrade --finish"
_UNLIMITED = "the server is of an older version, which does not know locks with a limit: upgrade all servers, then type holdfast upgrade --finish"


class Lock:
    """A lock of the whole cluster. Use it as a context manager:

        with Lock("reports/nightly") as lock:
            lock.append("reports/nightly.log", b"one line\\n")

    wait is for how many seconds to wait in the fair queue: None is for ever, 0 is not at all. ttl is
    how long others wait, in seconds, when this process dies. shared holds it together with others
    that share it; nothing can be appended then. limit leaves it to so many holders at a time: weight is
    how many of these permits this one takes. All who hold the lock, or wait for it, have to give the same
    limit, else OtherLimit is raised; nothing can be appended either. on_lost is called once, on another thread, when the
    lock is lost; it gets the LockLost.

    once is a slot, such as "2026-11-22" or "build-17", for which something is done once: done says
    that it is, and from then on AlreadyDone is raised to who wants the lock for that slot, or an
    earlier one, and to who waits for it. remember has the service remember the lock's last token
    when nobody holds it any more. after_token acquires the lock only if nobody was granted it since
    it was granted under this token; else, also where nobody knows, LockChanged is raised. It never
    waits.

    A Lock may be acquired again after its release. It is not reentrant, and holds one grant at a
    time: threads that compete for a lock each need a Lock of their own.
    """

    def __init__(
        self,
        name: str,
        *,
        client: Optional[Client] = None,
        wait: Optional[float] = None,
        ttl: float = 30.0,
        shared: bool = False,
        limit: Optional[int] = None,
        weight: int = 1,
        metadata: str = "",
        on_lost: Optional[Callable[[LockLost], None]] = None,
        once: Optional[str] = None,
        remember: bool = False,
        after_token: Optional[int] = None,
    ) -> None:
        _check_wait(wait)
        if ttl < 0.001:
            raise ConfigError(f"ttl {ttl}: use seconds, at least 0.001")
        if once == "":
            raise ConfigError("the slot of once is empty: name a day or a build, or use None")
        if once and shared:
            raise ConfigError(f"slot {once!r} and shared: what is done once is done by one holder")
        if limit is None and weight != 1:
            raise ConfigError(f"weight {weight}: say by limit of how many permits")
        if limit is not None and not 1 <= weight <= limit < 2**32:
            raise ConfigError(f"weight {weight} of {limit} permits: use 1 to the limit, and a limit below 2**32")
        if limit is not None and (shared or once):
            raise ConfigError("a limit goes neither with shared nor with once")
        if after_token is not None and after_token < 1:
            raise ConfigError(f"after_token {after_token}: use the token of an earlier grant, or None")
        if after_token is not None and wait is None:
            wait = 0.0
        self.once, self.remember, self.after_token = once, remember, after_token
        self.limit, self.weight = limit, weight
        self.name, self.wait, self.ttl, self.shared, self.metadata = name, wait, ttl, shared, metadata
        self._given = client
        self._cell: Optional[Client] = None  # by which it was acquired last: that of the lock's cell
        self._on_lost = on_lost
        self._mutex = threading.Lock()
        self._grant: Optional[Grant] = None
        self._busy = False
        self._pending = False  # acquire has acquired it, and no with block has begun
        self._finishing = threading.Lock()  # one done at a time

    @property
    def client(self) -> Client:
        return self._cell or self._given or default_client()

    def _acquire(self, seconds: Optional[float], abort: Optional[Abort]) -> Grant:
        began = _clock.now()

        def ask(at: Client) -> Grant:
            grant = _Acquisition(self, at, seconds, abort, began).run()
            self._cell = at
            return grant

        return (self._given or default_client()).in_cell(self.name, ask)

    # To get it

    def acquire(self, wait: Optional[float] = AS_MADE, *, abort: Optional[Abort] = None) -> "Lock":
        """Acquire the lock, and return self, which a with block then releases: with lock.acquire(5): ...

        It raises NotAcquired if others hold the lock, or Timeout if they still do after the wait;
        any other error is no word about the lock: see HoldfastError. abort ends a wait from another
        thread.
        """
        seconds = self.wait if wait is AS_MADE else wait
        _check_wait(seconds)
        if self.after_token is not None and seconds != 0:
            raise ConfigError(f"after_token {self.after_token} and a wait: use a wait of 0, because whoever is waited for changes the last token")
        with self._mutex:
            if self._busy or (self._grant is not None and self._grant.ended() is None):
                raise ConfigError(f"lock {self.name!r} is held, or waited for, by this very object: release it, or use another Lock")
            self._busy = True
        try:
            grant = self._acquire(seconds, abort)
            with self._mutex:
                self._grant, self._pending = grant, True
        finally:
            self._busy = False
        return self

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return False, without a wait, if others hold it or wait for it."""
        try:
            self.acquire(0)
        except NotAcquired:
            return False
        return True

    def make_grant(self, who: Identity, a: Answer) -> Grant:
        """Return the grant in an answer."""
        left = min(self.ttl, parse_duration(a.body.get("ttl")))  # of a repeat, less than the TTL
        return Grant(self.name, a.number("token"), who, _clock.Lease(self.ttl, a.sent, left), self._on_lost)

    # While it is held

    @property
    def held(self) -> bool:
        """Whether the lock is certainly held now. It is False when the lease may have ended, whatever the network does."""
        grant = self._grant
        return grant is not None and grant.ended() is None

    @property
    def token(self) -> int:
        """The fencing token, for resources that remember the highest one they have seen; also after a loss."""
        return self._need().token

    @property
    def remaining(self) -> float:
        """For how many seconds more the lock is certainly held, if no renewal is answered."""
        return self._grant.left() if self._grant is not None else 0.0

    @property
    def in_jeopardy(self) -> bool:
        """Whether half of the lease has passed without an answered renewal: it is held, and may be lost soon."""
        grant = self._grant
        return grant is not None and grant.ended() is None and _clock.now() >= grant.lease()[2]

    def check(self) -> None:
        """Raise LockLost unless the lock is certainly held."""
        ended = self._need().ended()
        if ended is not None:
            raise ended

    def wait_lost(self, timeout: Optional[float] = None) -> bool:
        """Wait until the lock is lost or released, and report whether it is: a pause that ends in time."""
        grant = self._need()
        until = None if timeout is None else _clock.now() + timeout
        while grant.ended() is None:
            left = None if until is None else until - _clock.now()
            if left is not None and left <= 0:
                return False
            grant.over.wait(min(1.0, grant.left() or 0.001, left if left is not None else 1.0))
        return True

    def append(self, file: str, data: Union[bytes, str], *, at: Optional[int] = None, adopt_existing: bool = False) -> Receipt:
        """Append to a protected file, exactly once, and only under the live token. The first append binds the file.

        With at, it appends only if the file ends at this offset, else it raises OffsetMismatch.
        adopt_existing binds a file that is there already. It raises LockLost if the token is not
        live, and UnknownOutcome if no server said within the budget whether it was executed: then
        Client.settle tells.
        """
        fields: Dict[str, Union[str, int]] = {"file": file}
        if at is not None:
            fields["expected_offset"] = at
        if adopt_existing:
            fields["adopt_existing"] = "true"
        raw = data.encode() if isinstance(data, str) else bytes(data)
        done = receipt(self._request("append", fields, raw))
        if done.length != len(raw):
            raise HoldfastError(f"append {file!r}: the receipt is of {done.length} bytes, not of {len(raw)}: check the file with holdfast fsck")
        return done

    def seal(self, file: str) -> Receipt:
        """Refuse all further appends to this generation of a file; every byte of it is durable."""
        return receipt(self._request("seal", {"file": file}))

    def rotate(self, file: str) -> Receipt:
        """Go on in a new, empty file, after the old one was moved away."""
        return receipt(self._request("rotate", {"file": file}))

    def downgrade(self) -> None:
        """Let others share the lock that is held alone. There is no way back."""
        self._request("downgrade", {})

    def set_metadata(self, text: str) -> None:
        """Replace the text that others see beside the holder."""
        self._request("metadata", {"metadata": text})

    def verify(self) -> bool:
        """Ask the service whether the token is live: True only if it is, by both sides."""
        grant = self._need()
        live = self.client.verify(self.name, grant.token)
        if not live:
            self._lose(grant, "the service has ended it")
        return live and grant.ended() is None

    def _request(self, op: str, fields: Mapping[str, Union[str, int]], data: Optional[bytes] = None) -> Answer:
        """Execute an operation under the token, unless the lock is lost on this side already."""
        grant = self._need()
        ended = grant.ended()
        if ended is not None:
            raise ended
        a = self.client.request(op, {"lock": self.name, "token": grant.token, **fields}, identity=grant.who, data=data)
        if a.status == "OK" or (a.status == "UNKNOWN" and a.flag("committed")):
            return a
        if a.status in _TOKEN_REFUSED:
            raise self._lose(grant, f"the service refuses its token: {a.text('message')}")
        raise refusal(op, a.body)

    def _lose(self, grant: Grant, reason: str) -> HoldfastError:
        why = grant.lose(reason)
        self.client.keeper.remove(grant)
        return why

    def _need(self) -> Grant:
        grant = self._grant
        if grant is None:
            raise ConfigError(f"lock {self.name!r} was not acquired")
        return grant

    # To give it back

    def release(self) -> None:
        """Give the lock back. It raises LockLost if the lock was lost before. To release again is no error."""
        self._release(self.client.budget)

    def _release(self, budget: float) -> None:
        grant, self._pending = self._need(), False
        ended = grant.ended()  # also where the clock has not been looked at since the lease ended
        if ended is None and not grant.release():
            ended = grant.ended()
        if ended is not None and not isinstance(ended, LockLost):
            return
        self._give_back(grant, ended, budget)

    def done(self) -> None:
        """Release the lock, and mark the slot of once as done, both or neither: nobody gets the lock for that slot again.

        It raises LockLost if the lock was lost before, and has marked nothing then. After any other
        error it may be called again: after an UnknownOutcome that makes certain what became of the
        first one. After a release it is an error, because nothing was marked.
        """
        if not self.once:
            raise ConfigError(f"lock {self.name!r} was made without once: release it")
        grant = self._need()
        if grant.foreign:
            raise LockLost(self.name, grant.token, "this process was forked from the one that holds it")
        with self._finishing:
            self._pending = False
            if grant.unsure is not None:
                grant.marked = self.client.settle(grant.unsure) is not None
                grant.unsure = None
            if grant.marked:
                return
            ended = grant.ended()
            if ended is None and not grant.release():
                ended = grant.ended()
            if isinstance(ended, LockLost):
                self._give_back(grant, ended, self.client.budget)  # which raises it
            if ended is not None and not grant.marking:
                raise ConfigError(f"lock {self.name!r} was released before: slot {self.once!r} is not marked as done")
            grant.marking = True
            try:
                self._give_back(grant, None, self.client.budget, done=True)
            except UnknownOutcome as e:
                grant.unsure = e
                raise
            grant.marked = True

    def _give_back(self, grant: Grant, ended: Optional[LockLost], budget: float, done: bool = False) -> None:
        """Have the service release a grant that has ended on this side, and raise why it did if it was lost."""
        if ended is not None and grant.foreign:
            raise ended  # the process that holds it releases it
        keeper = self.client.keeper
        left = keeper.leaving(grant.token)
        self.client.stay(grant.who)
        try:
            keeper.remove(grant)
            fields: Dict[str, object] = {"lock": self.name, "token": grant.token}
            if done:
                fields["done"] = True
            try:  # the service may still have it, and others need not wait for the end of the lease
                a = self.client.request("release", fields, identity=grant.who, budget=1.0 if ended else budget)
            except (Unavailable, UnknownOutcome):
                if ended is None:
                    raise
                raise ended from None
        finally:
            left()
            self.client.leave(grant.who)
        if ended is not None:
            raise ended
        if a.status in _TOKEN_REFUSED:
            raise LockLost(self.name, grant.token, f"the service has ended it before its release: {a.text('message')}")
        if a.status != "OK":
            raise refusal("release", a.body)

    def __enter__(self) -> "Lock":
        """Acquire the lock, unless acquire has just done so: with lock.acquire(5): ..."""
        if self._pending:
            self.check()
        else:
            self.acquire()
        self._pending = False
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        """Release the lock. If it was lost, what the block did last may not have been protected: this raises LockLost.

        An error of the block goes on, whatever the release says.
        """
        try:
            self._release(min(_GIVE_BACK, self.client.budget))
        except (Unavailable, UnknownOutcome) as e:
            log.warning("lock %r could not be released and ends with its lease: %s", self.name, e)
        except HoldfastError as e:
            if error is None:
                raise
            log.warning("%s", e)

    def __repr__(self) -> str:
        if self.held:
            return f"<holdfast.Lock {self.name!r}, held under token {self.token}>"
        return f"<holdfast.Lock {self.name!r}, not held>"


class _Acquisition:
    """One call of acquire."""

    def __init__(self, lock: Lock, client: Client, wait: Optional[float], abort: Optional[Abort], began: float) -> None:
        self._lock, self._client, self._wait, self._abort, self._began = lock, client, wait, abort, began

    def run(self) -> Grant:
        """Acquire the lock. Where it was granted while no answer came, and has ended, wait again for what is left."""
        who = self._client.enter(self._wait != 0)
        try:
            while True:
                place = self._lock.ttl if self._wait != 0 else 0.0
                undo = self._client.keeper.expect(who, self._lock.name, place)
                try:
                    grant = self._once(who)
                finally:
                    undo()
                if grant is not None:
                    self._client.stay(who)  # until the grant is removed
                    return grant
                if who.forgotten:
                    self._client.leave(who)
                    who = self._client.enter(self._wait != 0)
        finally:
            self._client.leave(who)

    def _left(self) -> Optional[float]:
        """Return how long to wait still, None for ever."""
        if not self._wait:
            return self._wait
        return max(0.0, self._wait - (_clock.now() - self._began))

    def _once(self, who: Identity) -> Optional[Grant]:
        """Send one request; None if it has come to nothing, and another one may be granted."""
        left, lock = self._left(), self._lock
        fields: Dict[str, object] = {
            "lock": lock.name,
            "ttl": duration(lock.ttl),
            "wait": "forever" if left is None else duration(left),
            "mode": "shared" if lock.shared else "exclusive",
            "holder": describe(),
        }
        if lock.metadata:
            fields["metadata"] = lock.metadata
        marks = {k: v for k, v in (("once", lock.once), ("remember", lock.remember), ("after_token", lock.after_token)) if v}
        fields.update(marks)
        if lock.limit is not None:
            fields.update(limit=lock.limit, weight=lock.weight)
        a, number = self._client.acquire_once(who, fields, self._wait != 0, self._abort)
        try:
            if a.status == "OK":
                grant = lock.make_grant(who, a)
                if marks and not a.flag("marked"):
                    self._drop(grant)
                    raise refusal("acquire", {"status": "INVALID_ARGUMENT", "message": _UNMARKED, "lock": lock.name})
                if lock.limit is not None and (a.number("limit"), a.number("weight")) != (lock.limit, lock.weight):
                    self._drop(grant)
                    raise refusal("acquire", {"status": "INVALID_ARGUMENT", "message": _UNLIMITED, "lock": lock.name})
                # A grant that may be old is renewed first: its lease then counts from now.
                return self._keep(grant, a.flag("repeat") or _clock.now() - a.sent > lock.ttl / 4)
            if a.status == "STALE_REQUEST" and not a.doubt:  # the service has forgotten a client that was idle for long
                self._client.forget(who)
                return None
            if a.status == "LEASE_EXPIRED" and (self._wait is None or _clock.now() - self._began < (self._wait or self._client.budget)):
                return None
        finally:
            if not a.doubt:
                self._client.done(who, number)
        raise self._refused(a)

    def _keep(self, grant: Grant, old: bool) -> Optional[Grant]:
        """Hand a grant to the keeper while its lease certainly lasts. None: it has ended at the service."""
        for _ in range(_LATE_RENEWALS):
            if old and not self._renewed(grant):
                return None
            if grant.lasts():
                self._client.keeper.add(grant)
                return grant
            grant = Grant(grant.lock, grant.token, grant.who, _clock.Lease(self._lock.ttl, 0, 0), self._lock._on_lost)
            old = True
        self._drop(grant)
        raise Unavailable(f"acquire {self._lock.name!r}: it was granted, and each answer took longer than its lease of {self._lock.ttl} s")

    def _renewed(self, grant: Grant) -> bool:
        try:
            a = self._client.ask("renew", {"lock": grant.lock, "token": grant.token})
        except BaseException:
            self._drop(grant)
            raise
        if a.status == "OK":
            grant.extend(a.sent, min(self._lock.ttl, parse_duration(a.body.get("ttl")) or self._lock.ttl))  # it was renewed
        return a.status == "OK"

    def _drop(self, grant: Grant) -> None:
        self._client.stay(grant.who)

        def work() -> None:
            try:
                self._client.let_go(grant.who, grant.lock, grant.token)
            finally:
                self._client.leave(grant.who)

        self._client.later(work, "release")

    def _refused(self, a: Answer) -> HoldfastError:
        name = self._lock.name
        holder, queue = Holder.of(a.body.get("holder")), a.number("queue_length")
        by = f" by {holder}" if holder is not None else ""
        holds = f": it is held{by}" if by else ""
        if a.status == "WAIT_TIMEOUT" or a.status == "HELD" and self._wait:  # nothing was left of the wait
            return Timeout(f"lock {name!r} did not become free within {self._wait} s{holds}", name, holder, queue)
        if a.status == "HELD":
            return NotAcquired(f"lock {name!r} is held{by}, {queue} waiting: try later, or wait for it", name, holder, queue)
        return refusal("acquire", {**a.body, "lock": name})


def _check_wait(wait: Optional[float]) -> None:
    if wait is not None and wait < 0:
        raise ConfigError(f"wait {wait}: use seconds, 0 for not at all, or None for ever")
