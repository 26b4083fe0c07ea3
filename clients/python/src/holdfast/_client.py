# SPDX-License-Identifier: Apache-2.0
"""A client of the service: identities, requests that are executed at most once, and failover."""

from __future__ import annotations

import atexit
import getpass
import json
import logging
import os
import random
import secrets
import socket
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode

from . import _clock
from ._config import DEFAULT_ENDPOINTS, Credential, checked, credential_from_environment, setting
from ._endpoints import Address, Certificate, resolve, through
from ._errors import ConfigError, Holder, HoldfastError, Refused, Unavailable, UnknownOutcome, WrongCluster, refusal
from ._keeper import Keeper
from ._site import Site, told
from ._transport import Abort, Aborted, Lost, Reply, Transport, Unsent, duration, parse_duration
from ._watch import Event, watch

log = logging.getLogger("holdfast")

T = TypeVar("T")

_WAITING_ATTEMPT = 5.0  # seconds of one attempt of a request that waits; the next one finds its place again
_SLOWEST = 250_000  # bytes in a second: for how long an attempt with much data may take
_STORAGE_PATIENCE = 1.0  # seconds for which a full disk is waited for
_MAX_RETRY_AFTER = 5.0
_NOT_EXECUTED = ("SECONDARY_MODE", "SERVER_FENCING", "NO_QUORUM", "STORAGE_UNAVAILABLE")
_NO_OUTCOME = ("INVALID_ARGUMENT", "ERROR", "PERMISSION_DENIED", "UNAUTHENTICATED", "LIMITED")  # of the question, not of the request
_DECIDED = ("OK", "WAIT_TIMEOUT", "CANCELLED", "LEASE_EXPIRED", "WRONG_CELL")  # the last: a cell never has the name


class Answer(NamedTuple):
    """The answer to a request. Fields that a server leaves out are empty."""

    body: Mapping[str, Any]
    #: When the attempt was sent that was answered.
    sent: float
    #: Another attempt may have been executed, or may be yet, and this answer does not tell.
    doubt: bool = False

    @property
    def status(self) -> str:
        return str(self.body.get("status") or "")

    def text(self, name: str) -> str:
        return str(self.body.get(name) or "")

    def number(self, name: str) -> int:
        return int(self.body.get(name) or 0)

    def flag(self, name: str) -> bool:
        return bool(self.body.get(name))


class Progress:
    """What is known of a request while it is under way."""

    def __init__(self) -> None:
        self.doubt = False  # some attempt may have been executed, or may be yet


class Pauses:
    """The pauses between the attempts of one call, with full jitter: clients that failed together do not come back together."""

    _BASE, _CAP, _EARLY_CAP, _EARLY = 0.010, 0.250, 0.060, 1.0

    def __init__(self, rand: Callable[[], float]) -> None:
        self._random = rand
        self._failures, self._paused = 0, 0.0

    def next(self, retry_after: float) -> float:
        """Return the pause after one more failure: not less than the server said, up to a limit."""
        if retry_after > 0:
            return min(retry_after, _MAX_RETRY_AFTER) + self._random() * 0.012
        cap = self._EARLY_CAP if self._paused < self._EARLY else self._CAP
        pause = self._random() * min(cap, self._BASE * float(1 << min(self._failures, 16)))
        self._failures += 1
        self._paused += pause
        return pause


class Identity:
    """A client as the service knows it, and the numbers of its requests. The client's mutex guards it.

    A wait keeps its number open for as long as it waits, and the service would have to remember
    every later request of the same identity. So each wait has an identity of its own, of a few that
    are used again.
    """

    def __init__(self, main: bool) -> None:
        self.main = main
        self.client_id = ""  # "" until it is opened
        self.nonce = secrets.randbits(62) + 1  # the same until it is answered; never the same in two processes
        self.forgotten = False
        self.users = 0  # requests, grants, and what ends them
        self.opening = threading.Lock()
        self._next = 1
        self._open: Set[int] = set()

    def take(self) -> Tuple[int, int]:
        """Return the number of a new request, and the lowest one that is open."""
        number = self._next
        self._next += 1
        self._open.add(number)
        return number, min(self._open)

    def low(self) -> int:
        return min(self._open, default=self._next)

    def done(self, number: int) -> None:
        """Note that a request is not sent again, and that its answer is not needed any more."""
        self._open.discard(number)


class Servers:
    """The servers in an order of this client's own, and which one is asked."""

    def __init__(self, addresses: Sequence[Address], rand: random.Random) -> None:
        self._mutex = threading.Lock()
        self.all = list(dict.fromkeys(addresses))
        rand.shuffle(self.all)
        self._at = 0

    def forked(self) -> None:
        """Forget who held the mutex when this process was forked."""
        self._mutex = threading.Lock()

    def current(self) -> Address:
        with self._mutex:
            return self.all[self._at]

    def leave(self, address: Address) -> None:
        """Ask the next server, unless another thread has moved on already."""
        with self._mutex:
            if self.all[self._at] == address:
                self._at = (self._at + 1) % len(self.all)


class Receipt(NamedTuple):
    """What an append, or another change of a file, has done."""

    file: str
    offset: int
    length: int
    crc32c: int
    generation: int
    lsn: int
    token: int
    #: The answer is that of an earlier attempt.
    repeat: bool
    #: It is in the log, and will be written to the file, which fails now, as soon as that is possible.
    pending: bool


class Client:
    """Asks the servers of one cluster. Safe for use by several threads.

    Without endpoints, those of HOLDFAST_ENDPOINTS, or of a configuration of clients, are used, else
    those of `holdfast dev`. credential is a key or ticket, a function that returns one, "" for
    none; None is what the environment has (docs/security.md). certificate names the files of a
    client's certificate and its key. budget is how long, in seconds, one call looks for a server
    that answers; a wait for a lock does not use it up while a server is there. attempt is how long
    one server may take to answer what needs no waiting.
    """

    def __init__(
        self,
        endpoints: Union[None, str, Sequence[str]] = None,
        *,
        credential: Union[None, str, Credential] = None,
        ca: str = "",
        certificate: Optional[Tuple[str, str]] = None,
        budget: float = 15.0,
        attempt: float = 2.0,
    ) -> None:
        if budget <= 0 or attempt <= 0:
            raise ConfigError("budget and attempt must be positive")
        self.budget, self.attempt = budget, attempt
        shown = Certificate(*certificate) if certificate else _certificate_from_environment()
        if endpoints is None:
            endpoints = setting(os.environ, "HOLDFAST_ENDPOINTS", "endpoints") or DEFAULT_ENDPOINTS
            ca = ca or os.environ.get("HOLDFAST_CA", "") or _ca_beside(endpoints)
        addresses, self._trust, self._site = resolve(endpoints, ca, shown)
        self._given = credential, shown
        self._asked = endpoints, ca
        self._random = random.Random()
        self._servers = Servers(addresses, self._random)
        self._transport = Transport(self._trust, _credential(credential))
        self._cluster = ""  # from the first answer on
        self._alone = False  # a server has said that it is of no site
        self._pid = os.getpid()
        self._begin()
        _CLIENTS.add(self)

    def _begin(self) -> None:
        """Begin without identity, locks and connections."""
        self._mutex = threading.Lock()
        self._main = Identity(main=True)
        self._free: List[Identity] = []
        self._settling: Set[threading.Thread] = set()
        self._closed = False
        self._cells: Dict[int, Client] = {}
        self.keeper = Keeper(self)

    def forked(self) -> None:
        """Begin anew in the child of a fork: what the parent holds is the parent's."""
        self.keeper.abandon_all("this process was forked from the one that holds it")
        self._transport.forked()
        self._servers.forked()
        self._random.seed()
        self._pid = os.getpid()
        self._begin()

    # Attempts

    def ask(
        self,
        op: str,
        fields: Mapping[str, Any],
        *,
        data: Optional[bytes] = None,
        budget: float = 0,
        attempt: float = 0,
        waits: bool = False,
        abort: Optional[Abort] = None,
        progress: Optional[Progress] = None,
    ) -> Answer:
        """Send an operation until it is answered for good. A refusal is an answer, too.

        It raises Unavailable if no server did what was asked for, also where progress.doubt is set.
        """
        path = "/v1/" + op
        if data is None:
            body = json.dumps(fields).encode()
        else:
            path, body = path + "?" + urlencode(fields), data
        call = _Call(self, op, waits, budget or self.budget, abort, progress or Progress())
        while True:
            address = self._servers.current()
            limit = _WAITING_ATTEMPT if waits else (attempt or self.attempt) + len(body) / _SLOWEST
            answer = call.attempt(address, lambda: self.exchange(address, "POST", path, body, limit, abort))
            if answer is not None:
                named = bool(fields.get("token"))
                return answer._replace(doubt=call.progress.doubt and not _decided(answer, named))

    def exchange(
        self,
        address: Address,
        method: str,
        path: str,
        data: Optional[bytes] = None,
        limit: float = 0,
        abort: Optional[Abort] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Reply:
        """Send one request to one server, and note of which cluster that is."""
        reply = self._transport.exchange(address, method, path, self.headers(headers), data, limit or self.attempt, abort)
        if reply.code != 412:
            self._cluster = self._cluster or reply.headers.get("holdfast-cluster", "")
        return reply

    def headers(self, more: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "holdfast-python", **(more or {})}
        if self._cluster:
            headers["Holdfast-Cluster"] = self._cluster
        return headers

    def healthy(self, address: Address) -> bool:
        """Report whether a server lives."""
        try:
            return self.exchange(address, "GET", "/livez", None, min(self.attempt, 1.0)).code == 200
        except (Unsent, Lost):
            return False

    # Requests

    def request(
        self,
        op: str,
        fields: Mapping[str, Any],
        *,
        identity: Optional[Identity] = None,
        data: Optional[bytes] = None,
        budget: float = 0,
    ) -> Answer:
        """Execute an operation at most once, under one request ID, which every attempt repeats.

        Without an identity it is the main one, which is opened anew if the service has forgotten it.
        It raises UnknownOutcome if it is not known whether the request was executed.
        """
        for _ in range(3):
            who = self.opened(identity or self._main)
            number, low = self._take(who)
            progress = Progress()
            ids = {"client_id": who.client_id, "request_id": number, "low_water": low}
            try:
                a = self.ask(op, {**fields, **ids}, data=data, budget=budget, progress=progress)
            except BaseException as e:
                if not progress.doubt:
                    self.done(who, number)
                elif isinstance(e, Unavailable):
                    raise self._unknown(f"{e}: it is not known whether it was executed", who, number) from e
                raise
            if a.doubt:
                raise self._unknown(f"{refusal(op, a.body)}: an earlier attempt may have been executed", who, number)
            self.done(who, number)
            if a.status != "STALE_REQUEST":
                return a
            self.forget(who)
            if identity is not None:
                return a
        raise refusal(op, a.body)

    def _unknown(self, message: str, who: Identity, number: int) -> UnknownOutcome:
        """Return the error of a request whose number stays open, so that the service remembers its outcome."""
        return UnknownOutcome(message, who.client_id, number, lambda: self.done(who, number))

    def opened(self, who: Identity) -> Identity:
        """Open an identity, unless it is."""
        with who.opening:
            if not who.client_id:
                a = self.ask("open", {"nonce": who.nonce})
                if a.status != "OK":
                    raise refusal("open client", a.body)
                who.client_id = a.text("client_id")
        return who

    def _take(self, who: Identity) -> Tuple[int, int]:
        with self._mutex:
            return who.take()

    def done(self, who: Identity, number: int) -> None:
        with self._mutex:
            who.done(number)

    def forget(self, who: Identity) -> None:
        """Drop an identity that the service has forgotten."""
        with self._mutex:
            who.forgotten = True
            if self._main is who:
                self._main = Identity(main=True)

    def enter(self, waits: bool) -> Identity:
        """Return the identity for an acquire: one of its own for a wait. The caller calls leave."""
        with self._mutex:
            if self._closed:
                raise ConfigError("the client is closed")
            who = self._main
            if waits:
                who = self._free.pop() if self._free else Identity(main=False)
            who.users += 1
            return who

    def stay(self, who: Identity) -> None:
        """Keep an identity for one more user."""
        with self._mutex:
            who.users += 1

    def leave(self, who: Identity) -> None:
        with self._mutex:
            who.users -= 1
            if who.users == 0 and not who.main and not who.forgotten:
                self._free.append(who)

    def acquire_once(self, who: Identity, fields: Mapping[str, Any], waits: bool, abort: Optional[Abort]) -> Tuple[Answer, int]:
        """Send one request for a lock. The caller says when its number is done.

        However this ends without an answer, the request is cancelled, and what it got is released.
        """
        self.opened(who)
        number, low = self._take(who)
        progress = Progress()
        ids = {"client_id": who.client_id, "request_id": number, "low_water": low}
        try:
            a = self.ask("acquire", {**fields, **ids}, waits=waits, abort=abort, progress=progress)
        except BaseException:
            if progress.doubt:
                self.cancel_later(who, number, str(fields["lock"]))
            else:
                self.done(who, number)
            raise
        if a.doubt:
            self.cancel_later(who, number, str(fields["lock"]))
        return a, number

    # What goes on in the background

    def later(self, work: Callable[[], None], name: str) -> None:
        """Do something on another thread; close waits a little for it. At the end of the process, do it now."""

        def run() -> None:
            try:
                work()
            except HoldfastError as e:
                log.warning("%s: %s", name, e)
            finally:
                with self._mutex:
                    self._settling.discard(thread)

        thread = threading.Thread(target=run, name="holdfast " + name, daemon=True)
        started = True
        with self._mutex:
            try:
                thread.start()
                self._settling.add(thread)  # close joins it, which has to be started by then
            except RuntimeError:  # the interpreter ends
                started = False
        if not started:
            run()

    def cancel_later(self, who: Identity, number: int, lock: str) -> None:
        """Cancel a request for a lock, and release what it got."""
        self.stay(who)
        undo = self.keeper.expect(who, lock)

        def work() -> None:
            try:
                ids = {"client_id": who.client_id, "request_id": number, "low_water": self._low(who)}
                a = self.ask("cancel", ids)
                if a.status == "OK" and a.number("token"):
                    self.let_go(who, lock, a.number("token"))
            finally:
                self.done(who, number)
                undo()
                self.leave(who)

        self.later(work, "cancel")

    def _low(self, who: Identity) -> int:
        with self._mutex:
            return who.low()

    def let_go(self, who: Identity, lock: str, token: int) -> None:
        """Release a grant that no caller has."""
        self.request("release", {"lock": lock, "token": token}, identity=who)

    # For users

    def settle(self, error: UnknownOutcome) -> Optional[Receipt]:
        """Make certain what became of a request. None: it was not executed, and never will be.

        It is cancelled, unless it was executed: then this returns what it did.
        """
        a = self._opener(error.client_id).ask("cancel", {"client_id": error.client_id, "request_id": error.request_id})
        if a.status in _NO_OUTCOME and not a.flag("committed"):
            raise refusal("settle", a.body)
        error.settled()
        if a.status == "OK" or a.flag("committed"):
            return receipt(a)
        if a.status == "STALE_REQUEST":
            raise refusal("settle", a.body)
        return None

    def verify(self, lock: str, token: int) -> bool:
        """Report whether a token is live, by a check that began after the request arrived."""

        def ask(at: Client) -> bool:
            a = at.ask("verify", {"lock": lock, "token": token})
            if a.status in ("OK", "INVALID_TOKEN", "LEASE_EXPIRED"):
                return a.status == "OK"
            raise refusal("verify", a.body)

        return self.in_cell(lock, ask)

    def break_lock(self, lock: str, *, token: int = 0, actor: str = "", reason: str = "", grace: float = 0) -> int:
        """Take a lock from its holder, and return the token that has ended. With a grace, the holder is asked first."""
        fields = {"lock": lock, "token": token, "actor": actor or user(), "reason": reason, "grace": duration(grace)}

        def ask(at: Client) -> int:
            a = at.request("break", {k: v for k, v in fields.items() if v not in (0, "", "0ms")})
            if a.status != "OK":
                raise refusal("break", a.body)
            return a.number("token")

        return self.in_cell(lock, ask)

    def get(self, path: str, **parameters: Union[str, int, bool]) -> Dict[str, Any]:
        """Return what a path of docs/http.md, section Reading, returns, such as get("/v1/locks", prefix="jobs/")."""
        return self._get(path, parameters).body()

    def info(self, lock: str) -> Dict[str, Any]:
        """Return who holds a lock, who waits, and its files, as the primary knows it."""
        return self.in_cell(lock, lambda at: at.get("/v1/locks/" + quote(lock), primary_only=True))

    def holder(self, lock: str) -> Optional[Holder]:
        """Return who holds a lock, None if nobody does."""
        return Holder.of(self.info(lock).get("holder"))

    def read(self, file: str, *, offset: int = 0, limit: int = 0) -> bytes:
        """Return the bytes of a protected file, as far as they are acknowledged, from the primary: at most 64 MiB at a time."""
        parameters: Dict[str, Union[str, int, bool]] = {"offset": offset}
        if limit:
            parameters["limit"] = limit
        return self.in_cell(file, lambda at: at._get("/v1/files/" + quote(file), parameters).raw)

    def _get(self, path: str, parameters: Mapping[str, Union[str, int, bool]]) -> Reply:
        words = {k: str(v).lower() if isinstance(v, bool) else v for k, v in parameters.items()}
        full = path + ("?" + urlencode(words) if words else "")
        call = _Call(self, path, False, self.budget, None, Progress())
        replies: List[Reply] = []

        def send() -> Reply:
            replies.append(self.exchange(address, "GET", full, None))
            if "holdfast-generation" in replies[-1].headers:
                return Reply(200, {}, b'{"status":"OK"}')  # what came are the bytes of a file
            return replies[-1]

        while True:
            address = self._servers.current()
            a = call.attempt(address, send)
            if a is not None and a.status != "OK":
                raise refusal("get " + path, a.body)
            if a is not None:
                return replies[-1]

    def watch(
        self,
        *,
        lock: str = "",
        prefix: str = "",
        after: Optional[int] = None,
        kinds: Sequence[str] = (),
        abort: Optional[Abort] = None,
    ) -> Iterator[Event]:
        """Yield what happens to a lock, to those that begin with a prefix, or to all.

        Without after, the first event is a reset, with the state. It goes on at another server
        where it was, and raises Unavailable if no server answers within the budget.
        """
        at = self
        if lock:  # any other cell would show nothing

            def find(of: Client) -> Client:
                of.get("/v1/locks/" + quote(lock), primary_only=True)
                return of

            at = self.in_cell(lock, find)
        return watch(at, lock, prefix, after, kinds, abort)

    # In a site, whose cells divide the names among them

    def cell(self, number: int) -> "Client":
        """Return the client of one cell of the site, by its number. close closes it, too.

        It has what cannot be had of several cells at once, such as a watch of all locks.
        """
        there = self._made(number)
        if there is not None:
            return there
        made = self._client_of(number)
        try:
            there = self._made(number, made)
        finally:
            if there is not made:
                made.close(0)
        return there or made

    def _made(self, number: int, made: Optional["Client"] = None) -> Optional["Client"]:
        """Return the client of a cell; where there is none, made becomes it. One that its user has closed is none."""
        with self._mutex:
            if self._closed:
                raise ConfigError("the client is closed")
            there = self._cells.get(number)
            if made is not None and (there is None or there._closed):
                there = self._cells[number] = made
            return None if there is None or there._closed else there

    def _client_of(self, number: int) -> "Client":
        """Make a client of another cell: by its volume, or by what servers of this one tell."""
        credential, certificate = self._given
        if self._site is not None and number in self._site.paths:
            try:
                return Client(self._site.paths[number], credential=credential, certificate=certificate, budget=self.budget, attempt=self.attempt)
            except (ConfigError, Unavailable):
                log.info("the volume of cell %d cannot be read: servers are asked where it is", number)
        cells, gateway = self._ask_site()
        if self._site is not None and number == self._site.own:  # these endpoints are known to lead there
            endpoints, ca = self._asked
            made = Client(endpoints, ca=ca, credential=credential, certificate=certificate, budget=self.budget, attempt=self.attempt)
            made._cluster = self._cluster
            return made
        addresses = cells[number].get("clients") if number in cells else None
        if number in cells and gateway:
            own = [cell for cell, c in cells.items() if c.get("cluster_id") == self._cluster]
            addresses = through(self._servers.all, number - own[0]) if own else None
        if not addresses or not cells[number].get("cluster_id"):
            raise Unavailable(f"cell {number} of the site is not known to the servers: see holdfast site status")
        there = self._trust.elsewhere(addresses, str(cells[number].get("pin") or ""))
        made = Client(there, credential=credential, certificate=certificate, budget=self.budget, attempt=self.attempt)
        made._cluster = str(cells[number]["cluster_id"])  # servers of another one refuse everything
        return made

    def _ask_site(self) -> Tuple[Dict[int, Mapping[str, Any]], bool]:
        """Return where each cell is served, by its number, and whether a gateway says so; nothing for a cluster by itself. From then on names are known."""
        status = self.get("/v1/status")
        self._hear(status)
        return {int(c.get("cell") or 0): c for c in status.get("cells") or []}, bool(status.get("gateway"))

    def _hear(self, status: Mapping[str, Any]) -> None:
        """Note which cell has which names, if a server tells."""
        own = status.get("cell")
        if own and self._site is None:
            self._site = told(own, int(own.get("cell") or 0))
        self._alone = self._alone or status.get("status") == "OK" and not status.get("cells")

    def _look(self) -> None:
        """Ask each server, also those that know no primary, which cell has which names, for a moment."""
        end = _clock.now() + min(self.attempt, 1.0)
        for address in self._servers.all:
            left = end - _clock.now()
            if self._site is not None or self._alone or left <= 0:
                return
            try:
                self._hear(self.exchange(address, "GET", "/v1/status", None, max(0.05, left / 2)).body())
            except (Unsent, Lost, ConfigError, WrongCluster):
                pass  # another one may know

    def _at(self, number: int) -> "Client":
        """Return this client if it is of that cell, else that of the cell."""
        return self if self._site is not None and number == self._site.own else self.cell(number)

    def in_cell(self, name: str, ask: Callable[["Client"], T]) -> T:
        """Return what ask returns for the client of the cell that has the lock or the file.

        Until that is known it is this client, whose cell refuses what is of another one, unless it has no primary.
        """
        if self._site is not None:
            return ask(self._at(self._site.route(name)))
        try:
            return ask(self)
        except Refused as e:
            if e.status != "WRONG_CELL":
                raise
            return ask(self.cell(int(e.answer.get("cell") or 0)))
        except (Unavailable, UnknownOutcome) as e:
            self._look()
            site: Optional[Site] = self._site
            if site is None or site.route(name) == site.own:
                raise
            if isinstance(e, UnknownOutcome):
                e.settled()  # a cell never executes what is about a name of another one
            return ask(self.cell(site.route(name)))

    def _opener(self, client_id: str) -> "Client":
        """Return the client of the cell that made a client ID, which ends with the mark of its cluster.

        Any other cell does not know the request: what it says is not the outcome.
        """
        _, marked, mark = client_id.rpartition("-")
        if not marked:
            return self
        with self._mutex:
            known = [self, *self._cells.values()]
        for k in known:  # where the error is from, and nobody has to be asked
            if _mark(k._cluster) == mark:
                return k
        cells, _ = self._ask_site()
        for number, c in cells.items():
            if _mark(str(c.get("cluster_id") or "")) == mark:
                return self if c["cluster_id"] == self._cluster else self.cell(number)
        if cells:
            raise Unavailable(f"client {client_id} is of no cell of the site that is known to the servers: see holdfast site status")
        return self

    def close(self, patience: float = 2.0) -> None:
        """Release what is held, and close the connections. Locks that cannot be released end with their leases."""
        with self._mutex:
            if self._closed:
                return
            self._closed, cells = True, list(self._cells.values())
        for c in cells:
            c.close(patience)
        if self._pid != os.getpid():
            return
        until = _clock.now() + patience
        self.keeper.close(until)
        with self._mutex:
            settling = list(self._settling)
        for thread in settling:
            thread.join(max(0.0, until - _clock.now()))
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def servers(self) -> Servers:
        return self._servers

    @property
    def transport(self) -> Transport:
        return self._transport

    def rand(self) -> float:
        return self._random.random()


class _Call:
    """The attempts of one call: which results are final, how long to pause, when to give up."""

    def __init__(self, client: Client, op: str, waits: bool, budget: float, abort: Optional[Abort], progress: Progress) -> None:
        self._client, self._op, self._waits, self._budget, self._abort = client, op, waits, budget, abort
        self.progress = progress
        self._until = _clock.now() + budget
        self._pauses = Pauses(client.rand)
        self._storage_since: Optional[float] = None

    def attempt(self, address: Address, send: Callable[[], Reply]) -> Optional[Answer]:
        """Make one attempt at a server, and return the answer if it is final.

        Else this makes a pause, and returns None. It raises Unavailable at the end of the budget.
        """
        if self._abort is not None and self._abort.is_set():
            raise Aborted(f"{self._op}: the call was ended")
        sent = _clock.now()
        doubted, self.progress.doubt = self.progress.doubt, True  # until an answer says otherwise
        try:
            reply = send()
            answer = Answer(reply.body(), sent)
        except (Unsent, ConfigError) as e:
            self.progress.doubt = doubted
            if isinstance(e, ConfigError):
                raise
            self._client.servers.leave(address)
            self._pause(e, 0)
            return None
        except Lost as e:
            self._after_loss(address, sent, e)
            return None
        if answer.status == "UNKNOWN" and not answer.flag("committed"):
            self._client.servers.leave(address)
            self._pause(refusal(self._op, answer.body), parse_duration(answer.body.get("retry_after")))
            return None
        self.progress.doubt = doubted
        if answer.flag("committed"):
            return answer
        why = self._refused(address, answer, reply.code)
        if why is None:
            return answer
        self._pause(why, parse_duration(answer.body.get("retry_after")))
        return None

    def _after_loss(self, address: Address, sent: float, e: Lost) -> None:
        if self._waits and e.silent and self._client.healthy(address):
            self._restart()  # it is well, and we wait
            return
        if self._waits and _clock.now() - sent > 1.0 and not e.silent:
            self._restart()  # it was there until now
        self._client.servers.leave(address)
        self._pause(e, 0)

    def _refused(self, address: Address, answer: Answer, code: int) -> Optional[Refused]:
        """Return why a repeat, at this server or another, may get another answer; None if the answer is final."""
        status, why = answer.status, refusal(self._op, answer.body)
        if status == "LIMITED" and parse_duration(answer.body.get("retry_after")) > 0:
            self._restart()  # the primary has answered: it is there
            return why
        if status == "INVALID_ARGUMENT" and code == 412:
            self._client.servers.leave(address)
            return WrongCluster(f"{address} belongs to another cluster: {answer.text('message')}", status, answer.body)
        if status == "STORAGE_UNAVAILABLE":
            self._storage_since = self._storage_since or answer.sent
            patient = self._waits or _clock.now() - self._storage_since < _STORAGE_PATIENCE
            return why if patient else None
        if status in _NOT_EXECUTED:
            self._client.servers.leave(address)
            return why
        return None

    def _restart(self) -> None:
        self._until, self._pauses = _clock.now() + self._budget, Pauses(self._client.rand)

    def _pause(self, why: Exception, retry_after: float) -> None:
        pause = self._pauses.next(retry_after)
        if _clock.now() + pause >= self._until:
            if isinstance(why, WrongCluster):
                raise why
            asked = ", ".join(str(a) for a in self._client.servers.all)
            raise Unavailable(f"{self._op}: no server did it within {self._budget:.1f} s at {asked}: check that the servers run: {why}") from why
        if self._abort is not None:
            self._abort.wait(pause)
        else:
            time.sleep(pause)


def _mark(cluster: str) -> str:
    """Return with what IDs of clients end that a cluster has made; "" if the cluster is not known."""
    return f"{max(1, int(cluster[:8], 16)):08x}" if cluster else ""


def _decided(a: Answer, named: bool) -> bool:
    """Report whether an answer holds for every attempt of its request: a receipt does, and a permanent refusal."""
    return a.status in _DECIDED or a.flag("committed") or (a.status == "INVALID_TOKEN" and named)


def receipt(a: Answer) -> Receipt:
    """Return the receipt in an answer."""
    return Receipt(
        a.text("file"),
        a.number("offset"),
        a.number("length"),
        a.number("crc32c"),
        a.number("generation"),
        a.number("lsn"),
        a.number("token"),
        a.flag("repeat"),
        a.status != "OK",
    )


def user() -> str:
    """Return the name of the user that runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else ""


def describe() -> Dict[str, Any]:
    """Return what others see of this process. Arguments may be secret, so the command is the name of the program alone."""
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return {"user": _clip(user(), 64), "host": _clip(socket.gethostname(), 120), "pid": os.getpid(), "command": _clip(program, 120)}


def _clip(text: str, most: int) -> str:
    """Return text as valid UTF-8 of at most so many bytes."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _credential(given: Union[None, str, Credential]) -> Credential:
    if given is None:
        return credential_from_environment()
    if isinstance(given, str):
        text = checked(given, "the argument credential") if given else ""
        return lambda _: text
    return given


def _certificate_from_environment() -> Optional[Certificate]:
    cert = setting(os.environ, "HOLDFAST_CERT", "cert")
    key = setting(os.environ, "HOLDFAST_CERT_KEY", "cert-key")
    if bool(cert) != bool(key):
        raise ConfigError("HOLDFAST_CERT and HOLDFAST_CERT_KEY, or cert and cert-key: name both files, or none")
    return Certificate(cert, key) if cert else None


def _ca_beside(endpoints: Union[str, Sequence[str]]) -> str:
    """Return the authority's certificate in the configuration, which is for the endpoints that are there."""
    if os.environ.get("HOLDFAST_ENDPOINTS"):
        return ""
    return setting(os.environ, "HOLDFAST_CA", "ca")


_CLIENTS: "weakref.WeakSet[Client]" = weakref.WeakSet()
_default: Optional[Client] = None
_default_mutex = threading.Lock()


def default_client() -> Client:
    """Return the client that locks without one share: that of the environment, made at the first call."""
    global _default
    with _default_mutex:
        if _default is None:
            _default = Client()
        return _default


def _after_fork() -> None:
    global _default_mutex
    _default_mutex = threading.Lock()
    for client in list(_CLIENTS):
        client.forked()


def _at_exit() -> None:
    for client in list(_CLIENTS):
        client.close(1.0)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
