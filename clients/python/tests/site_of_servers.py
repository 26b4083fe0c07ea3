# SPDX-License-Identifier: Apache-2.0
"""Three real servers on loopback, as `holdfast dev` runs them, for tests that kill and pause them by their process IDs.

HOLDFAST_BINARY names the binary, without which these tests skip; HOLDFAST_BASE_PORT the first of the ports; with HOLDFAST_FAULTS=1
those run, too, that take their time.
"""

import ctypes
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from holdfast import Client, HoldfastError

BINARY = os.environ.get("HOLDFAST_BINARY", "")
BASE_PORT = int(os.environ.get("HOLDFAST_BASE_PORT") or 17650)
FAULTS = bool(os.environ.get("HOLDFAST_FAULTS"))
SOURCES = str(pathlib.Path(__file__).resolve().parent.parent / "src")

needs_servers = unittest.skipUnless(BINARY, "HOLDFAST_BINARY names no binary of holdfast to test against")
needs_time = unittest.skipUnless(BINARY and FAULTS, "takes its time: set HOLDFAST_BINARY and HOLDFAST_FAULTS=1")


def dies_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Case(unittest.TestCase):
    """A test with servers of its own."""

    flags = ()

    def setUp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        self.volume = os.path.join(d.name, "volume")
        log = open(os.path.join(d.name, "log"), "w+")
        self.addCleanup(log.close)
        self.dev = subprocess.Popen(
            [BINARY, "dev", "--dir", self.volume, "--base-port", str(BASE_PORT), "-o", "json", *self.flags],
            stdout=subprocess.PIPE, stderr=log, preexec_fn=dies_with_parent,
        )  # fmt: skip
        self.addCleanup(self.end)
        line = self.dev.stdout.readline()
        if not line:
            log.seek(0)
            self.fail("dev ended: " + log.read()[-2000:])
        self.said = json.loads(line)
        self.pids = {s["id"]: s["pid"] for s in self.said["servers"]}
        self.paused = set()
        self.endpoints = [s["client"] for s in self.said["servers"]]
        self.client = self.new_client()
        self.primary()

    def end(self):
        for pid in self.paused:
            os.kill(pid, signal.SIGCONT)
        self.dev.terminate()
        self.dev.wait()
        self.dev.stdout.close()

    def new_client(self, endpoints=None, **options):
        client = Client(endpoints or self.endpoints, **{"credential": "", **options})
        self.addCleanup(client.close, 0.2)
        return client

    def primary(self):
        """The ID of the primary, once it serves."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                status = self.client.get("/v1/status")
                if (status.get("primary") or {}).get("id") in self.pids and self.client.get("/v1/locks", primary_only=True):
                    return status["primary"]["id"]
            except HoldfastError:
                pass
            time.sleep(0.05)
        self.fail("there is no primary")

    def until(self, what, seconds=20.0):
        """Wait until what() is true."""
        over = time.monotonic() + seconds
        while not what():
            if time.monotonic() > over:
                self.fail("it did not happen")
            time.sleep(0.01)

    def kill_primary(self):
        os.kill(self.pids.pop(self.primary()), signal.SIGKILL)

    def pause(self, pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            self.paused.add(pid)

    def resume(self):
        for pid in list(self.paused):
            os.kill(pid, signal.SIGCONT)
            self.paused.remove(pid)

    def python(self, code, *args):
        """Run a program with this package, whose output is read line by line; it ends with the test."""
        env = {**os.environ, "PYTHONPATH": SOURCES, "HOLDFAST_ENDPOINTS": ",".join(self.endpoints), "PYTHONUNBUFFERED": "1"}
        p = subprocess.Popen([sys.executable, "-c", code, *args], env=env, stdout=subprocess.PIPE, text=True, preexec_fn=dies_with_parent)
        self.addCleanup(lambda: (p.kill(), p.wait(), p.stdout.close()))
        return p

    def holdfast(self, *args):
        env = {**os.environ, "HOLDFAST_ENDPOINTS": ",".join(self.endpoints)}
        return subprocess.run([BINARY, *args], env=env, capture_output=True, text=True)


class Lossy:
    """A proxy before a server that breaks some of its connections, before or after what it passes on."""

    def __init__(self, target, seed, share):
        host, port = target.rsplit(":", 1)
        self._target, self._random, self._share = (host, int(port)), random.Random(seed), share
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.broken = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                c, _ = self._listener.accept()
            except OSError:
                return
            try:
                s = socket.create_connection(self._target, 2)
            except OSError:
                c.close()
                continue
            s.settimeout(None)
            threading.Thread(target=self._pass_both, args=(c, s), daemon=True).start()

    def _pass_both(self, c, s):
        with c, s:
            back = threading.Thread(target=self._pass_on, args=(s, c), daemon=True)
            back.start()
            self._pass_on(c, s)
            back.join()

    def _pass_on(self, a, b):
        try:
            while True:
                data = a.recv(1 << 16)
                if not data:
                    break
                breaks = self._random.random() < self._share
                if not breaks or self._random.random() < 0.5:
                    b.sendall(data)
                if breaks:
                    self.broken += 1
                    break
        except OSError:
            pass
        for x in (a, b):
            try:
                x.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
