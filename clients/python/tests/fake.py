# SPDX-License-Identifier: Apache-2.0
"""A server for tests, in this process: one lock table, with receipts, whose answers can be lost, delayed or replaced.

Its answers are lean: fields that are empty are left out.
"""

import http.server
import json
import logging
import threading
import unittest
from urllib.parse import parse_qsl, urlsplit

from holdfast import Client, _clock

logging.getLogger("holdfast").addHandler(logging.NullHandler())  # what is expected to fail need not be seen

CLUSTER = "0123456789abcdef0123456789abcdef"

# What a script says of one request, beside an answer of its own, (code, body).
LOSE = "lose"  # it is executed, and the answer is lost
DROP = "drop"  # it is not executed, and the connection breaks
HANG = "hang"  # it is executed, and never answered


class Table:
    """What all fake servers of a cluster share."""

    def __init__(self):
        self.mutex = threading.Condition()
        self.lsn = 0
        self.locks = {}  # name: (token, client)
        self.receipts = {}  # (client, request): answer
        self.files = {}
        self.slots = {}  # (lock, token): the slot it was granted for
        self.done = {}  # lock: the highest slot that is done, by its text
        self.last = {}  # lock: its last token
        self.limit = None  # with which others use all locks
        self.old = False  # it is of a version that does not know what a lock remembers
        self.log = []  # (operation, fields) of all requests
        self.executed = []  # the same of those that were executed, without repeats
        self.cluster = CLUSTER
        self.foreign = {}  # prefix: the cell of a site that has such names
        self.status = {"status": "OK"}
        self.script = {}  # operation: what to do with the next requests

    def next(self):
        self.lsn += 1
        return self.lsn

    def of(self, op):
        """The fields of all requests for an operation."""
        return [fields for name, fields in list(self.log) if name == op]

    def refuses(self, name):
        """The answer to a request for a name of another cell, None if it is ours."""
        for prefix, cell in self.foreign.items():
            if name.startswith(prefix):
                return {"status": "WRONG_CELL", "cell": cell, "message": f"it belongs to cell {cell}"}
        return None

    def execute(self, op, fields, data):
        key = (fields.get("client_id"), fields.get("request_id"))
        if op == "cancel":
            self.mutex.notify_all()
            return self.receipts.setdefault(key, {"status": "CANCELLED"})
        if op in ("acquire", "release", "append") and key in self.receipts:
            return {**self.receipts[key], "repeat": True}
        if op in ("acquire", "release", "append"):
            if key[0] not in [f"@{n}" for n in range(1, self.lsn + 1)]:
                return {"status": "STALE_REQUEST", "message": f"client {key[0]} is not open"}
        self.executed.append((op, fields))
        answer = getattr(self, "do_" + op)(fields, data)
        if answer["status"] in ("OK", "WAIT_TIMEOUT") and op in ("acquire", "release", "append"):
            self.receipts[key] = answer
        return answer

    def do_open(self, fields, _):
        return {"status": "OK", "client_id": f"@{self.next()}"}

    def do_acquire(self, fields, _):
        name = fields["lock"]
        if fields.get("once", "~") <= self.done.get(name, ""):
            return {"status": "ALREADY_DONE", "lock": name}
        if name in self.locks:
            if fields["wait"] in ("0ms", "0s"):
                return {"status": "HELD", "lock": name, "holder": {"client_id": self.locks[name][1], "host": "elsewhere", "pid": 7}}
            key = (fields["client_id"], fields["request_id"])
            wait = None if fields["wait"] == "forever" else float(fields["wait"][:-2]) / 1000
            self.mutex.wait_for(lambda: name not in self.locks or key in self.receipts, wait)
            if key in self.receipts:
                return self.receipts[key]  # it was cancelled, or another attempt was granted the lock
            if name in self.locks:
                return {"status": "WAIT_TIMEOUT", "lock": name}
        if "after_token" in fields and fields["after_token"] != self.last.get(name):
            return {"status": "LOCK_CHANGED", "lock": name}
        if self.limit is not None and self.limit != fields.get("limit"):
            return {"status": "OTHER_LIMIT", "lock": name, "limit": self.limit}
        token = self.last[name] = self.next()
        self.locks[name] = (token, fields["client_id"])
        self.slots[name, token] = fields.get("once")
        answer = {"status": "OK", "lock": name, "token": token, "ttl": fields["ttl"], "client_id": fields["client_id"]}
        if "limit" in fields and not self.old:
            answer.update(limit=fields["limit"], weight=fields["weight"])
        asked = not self.old and {"once", "remember", "after_token"} & set(fields)
        return {**answer, "marked": True} if asked else answer

    def live(self, fields):
        return self.locks.get(fields["lock"], (0, ""))[0] == int(fields["token"])

    def do_renew(self, fields, _):
        return {"status": "OK", "token": fields["token"]} if self.live(fields) else {"status": "INVALID_TOKEN"}

    do_verify = do_renew

    def do_keepalive(self, fields, _):
        grants = [{"lock": n, "token": t} for n, (t, who) in self.locks.items() if who == fields["client_id"]]
        return {"status": "OK", "differs": True, "grants": grants} if grants else {"status": "OK", "differs": True}

    def do_release(self, fields, _):
        if not self.live(fields):
            return {"status": "INVALID_TOKEN", "message": "it is not live"}
        if fields.get("done"):
            self.done[fields["lock"]] = self.slots[fields["lock"], fields["token"]]
        del self.locks[fields["lock"]]
        self.mutex.notify_all()
        return {"status": "OK", "token": fields["token"]}

    def do_break(self, fields, _):
        token, _ = self.locks.pop(fields["lock"], (0, ""))
        return {"status": "OK", "token": token} if token else {"status": "INVALID_TOKEN", "message": "nobody holds it"}

    def do_append(self, fields, data):
        if not self.live(fields):
            return {"status": "INVALID_TOKEN", "message": "it is not live"}
        old = self.files.get(fields["file"], b"")
        if "expected_offset" in fields and int(fields["expected_offset"]) != len(old):
            return {"status": "OFFSET_MISMATCH", "offset": len(old)}
        self.files[fields["file"]] = old + data
        answer = {"status": "OK", "file": fields["file"], "length": len(data), "generation": 1, "lsn": self.next()}
        return {**answer, "offset": len(old)} if old else answer


class Server:
    """One fake server."""

    def __init__(self, table):
        self.table = table
        self.over = threading.Event()
        self.events = b""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                server.post(self)

            def do_GET(self):
                server.get(self)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads, self.http.block_on_close = True, False
        self.endpoint = f"127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.over.set()
        self.http.shutdown()
        self.http.server_close()

    def post(self, h):
        url = urlsplit(h.path)
        op, data = url.path[len("/v1/") :], h.rfile.read(int(h.headers.get("Content-Length") or 0))
        fields = dict(parse_qsl(url.query)) if op == "append" else json.loads(data)
        if "request_id" in fields:
            fields["request_id"] = int(fields["request_id"])
        t = self.table
        with t.mutex:
            t.log.append((op, fields))
            steps = t.script.get(op)
            step = steps.pop(0) if steps else None
            if isinstance(step, tuple):
                code, body = step
            elif h.headers.get("Holdfast-Cluster", t.cluster) != t.cluster:
                code, body = 412, {"status": "INVALID_ARGUMENT", "message": "another cluster"}
            elif step != DROP:
                body = t.refuses(fields.get("lock", "")) or t.execute(op, fields, data)
                code = 200 if body["status"] == "OK" else 409
        if step in (DROP, LOSE):
            h.close_connection = True
            return
        if step == HANG:
            self.over.wait()
            h.close_connection = True
            return
        self.send(h, code, json.dumps(body).encode())

    def send(self, h, code, raw, **headers):
        try:
            h.send_response(code)
            for name, value in headers.items():
                h.send_header(name.replace("_", "-"), value)
            h.send_header("Holdfast-Cluster", self.table.cluster)
            h.send_header("Content-Length", str(len(raw)))
            h.end_headers()
            h.wfile.write(raw)
        except OSError:
            h.close_connection = True  # the client has gone

    def get(self, h):
        url = urlsplit(h.path)
        fields = dict(parse_qsl(url.query))
        with self.table.mutex:
            self.table.log.append((url.path, {**fields, **{k.lower(): v for k, v in h.headers.items()}}))
            steps = self.table.script.get(url.path)
            step = steps.pop(0) if steps else None
        if isinstance(step, bytes):  # a stream that ends
            h.close_connection = True
            h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + step)
        elif step == HANG:
            self.over.wait()
            h.close_connection = True
        elif step is not None:
            self.send(h, step[0], json.dumps(step[1]).encode())
        elif self.table.refuses(url.path.split("/", 3)[-1]):
            self.send(h, 421, json.dumps(self.table.refuses(url.path.split("/", 3)[-1])).encode())
        elif url.path == "/v1/status":
            self.send(h, 200, json.dumps(self.table.status).encode())
        elif url.path.startswith("/v1/files/"):
            self.send(h, 200, self.table.files[url.path[len("/v1/files/") :]], Holdfast_Generation="1")
        else:
            self.send(h, 200, b'{"status":"OK"}')


class Time:
    """A clock that a test moves on: the real one and what was added."""

    def __init__(self):
        self.added = 0.0
        self.real = _clock.now

    def __call__(self):
        return self.real() + self.added


class Case(unittest.TestCase):
    """A test with a cluster of fake servers, and clients that do not wait for long."""

    servers = 1

    def setUp(self):
        self.table = Table()
        self.all = [Server(self.table) for _ in range(self.servers)]
        for s in self.all:
            self.addCleanup(s.close)
        self.endpoints = [s.endpoint for s in self.all]
        self.client = self.new_client()

    def new_client(self, **options):
        client = Client(self.endpoints, credential="", **{"budget": 10.0, "attempt": 2.0, **options})
        self.addCleanup(client.close, 0.2)
        return client

    def set_clock(self):
        clock = Time()
        _clock.now = clock
        self.addCleanup(setattr, _clock, "now", clock.real)
        return clock

    def renew_now(self, client=None):
        """Have the keeper renew its leases, and wait until it has begun with that."""
        keeper, count = (client or self.client).keeper, len(self.table.of("keepalive"))
        with keeper._cond:
            keeper._due = 0
            keeper._cond.notify_all()
        self.until(lambda: len(self.table.of("keepalive")) > count)

    def until(self, what, seconds=20.0):
        """Wait until what() is true."""
        over = threading.Event()
        for _ in range(int(seconds * 100)):
            value = what()
            if value:
                return value
            over.wait(0.01)
        self.fail("it did not happen")
