# SPDX-License-Identifier: Apache-2.0
"""With real servers: what is promised, also while the primary is killed or paused."""

import asyncio
import os
import pathlib
import pwd
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from holdfast import AlreadyDone, Client, Election, FileLock, HoldfastError, Lock, LockChanged, LockLost, NotAcquired, Timeout, Unauthenticated, Unavailable, UnknownOutcome
from holdfast.aio import AsyncLock
from site_of_servers import BASE_PORT, BINARY, Case, Lossy, dies_with_parent, needs_servers, needs_time

ROOT = pathlib.Path(__file__).resolve().parents[3]


def blocks(text):
    """Yield the blocks of Python in a document, each with the text behind it that it prints."""
    for block in re.finditer(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", text, re.MULTILINE | re.DOTALL):
        yield block[1], block[2]


@needs_servers
class DocumentsTest(Case):
    def test_blocks(self):
        count = 0
        for name in ("docs/python.md", "clients/python/README.md"):
            text = (ROOT / name).read_text(encoding="utf-8")
            for code, prints in blocks(text):
                with self.subTest(name, line=text[: text.index(code)].count("\n") + 1):
                    p = self.python(code)
                    shown = p.stdout.read()
                    self.assertEqual((p.wait(), shown), (0, prints or shown))
                    count += 1
        self.assertGreater(count, 9)


@needs_servers
class ServersTest(Case):
    def test_day(self):
        """One walk through what there is: starting the servers takes longer than all of it."""
        self.locks()
        self.appends()
        self.breaks()
        self.marks()
        self.flock()
        self.watches()
        asyncio.run(self.asynchronously())

    def locks(self):
        mine, other = Lock("jobs/a", client=self.client, metadata="m"), Lock("jobs/a", client=self.new_client())
        with mine:
            self.assertTrue(mine.verify())
            self.assertEqual(self.client.holder("jobs/a").pid, os.getpid())
            self.assertEqual(self.client.info("jobs/a")["metadata"], "m")
            mine.set_metadata("n")
            self.assertFalse(other.try_acquire())
            with self.assertRaises(NotAcquired) as e:
                other.acquire(0)
            self.assertEqual(e.exception.holder.token, mine.token)
            with self.assertRaises(Timeout):
                other.acquire(0.2)
        with other:
            self.assertGreater(other.token, mine.token)
        self.assertFalse(self.client.verify("jobs/a", mine.token))
        with Lock("jobs/s", client=self.client, shared=True), Lock("jobs/s", client=self.new_client(), shared=True):
            self.assertFalse(other.held)

    def appends(self):
        with Lock("jobs/a", client=self.client) as lock:
            first = lock.append("a b/c.txt", "ä\n")
            second = lock.append("a b/c.txt", b"\x00\xff", at=first.length)
            self.assertEqual((first.offset, second.offset, second.length), (0, 3, 2))
            lock.seal("a b/c.txt")
            with self.assertRaises(HoldfastError):
                lock.append("a b/c.txt", b"x")
            os.rename(os.path.join(self.volume, "files/a b/c.txt"), os.path.join(self.volume, "files/old.txt"))
            lock.rotate("a b/c.txt")
            self.assertEqual(lock.append("a b/c.txt", b"x" * (1 << 20)).offset, 0)
            lock.downgrade()
        self.assertEqual(len(self.client.read("a b/c.txt")), 1 << 20)
        self.assertEqual(self.client.read("a b/c.txt", offset=5, limit=3), b"xxx")

    def breaks(self):
        lost = []
        lock = Lock("jobs/a", client=self.client, ttl=1.5, on_lost=lost.append).acquire()
        self.assertEqual(self.client.break_lock("jobs/a", reason="test"), lock.token)
        self.assertTrue(lock.wait_lost(10))
        self.until(lambda: len(lost) == 1)
        with self.assertRaises(LockLost):
            lock.append("f", b"x")
        with self.assertRaises(LockLost):
            lock.release()

    def marks(self):
        with self.assertRaises(ZeroDivisionError), Lock("jobs/m", client=self.client, once="build-9"):
            raise ZeroDivisionError
        other = Lock("jobs/m", client=self.new_client(), once="build-9")
        refused = []

        def wait():
            try:
                other.acquire()
            except AlreadyDone as e:
                refused.append(e.status)

        with Lock("jobs/m", client=self.client, once="build-10") as lock:
            thread = threading.Thread(target=wait)
            thread.start()
            self.until(lambda: self.client.info("jobs/m").get("queue_length"))
            lock.done()
        thread.join(30)
        self.assertEqual(refused, ["ALREADY_DONE"])
        with Lock("jobs/m", client=self.client, after_token=lock.token, once="build-11") as lock:
            pass
        with Lock("jobs/m", client=self.new_client()):
            pass
        with self.assertRaises(LockChanged):
            Lock("jobs/m", client=self.client, after_token=lock.token).acquire()

    def flock(self):
        with FileLock("/share/x.lock", client=self.client):
            self.assertEqual(self.holdfast("flock", "-n", "-E", "75", "/share/x.lock", "true").returncode, 75)
        self.assertEqual(self.holdfast("flock", "-n", "/share/x.lock", "true").returncode, 0)

    def watches(self):
        w = self.client.watch(prefix="seen/")
        self.assertEqual(next(w).kind, "reset")
        with Lock("seen/a", client=self.client) as lock:
            pass
        self.assertEqual([(e.kind, e.lock, e.token) for e in (next(w), next(w))], [(k, "seen/a", lock.token) for k in ("grant", "release")])
        w.close()

    async def asynchronously(self):
        async def count():
            async with AsyncLock("async/n", client=self.client) as lock:
                await lock.append("n.txt", "x")

        await asyncio.gather(*[count() for _ in range(12)])
        self.assertEqual(self.client.read("n.txt"), b"x" * 12)

    def test_appends_over_a_kill(self):
        with Lock("log", client=self.client) as lock:
            for i in range(300):
                if i == 100:
                    self.kill_primary()
                lock.append("log.txt", f"line {i}\n")
            self.assertTrue(lock.held)
        self.assertEqual(self.client.read("log.txt").decode().splitlines(), [f"line {i}" for i in range(300)])

    def test_cut_off_holder_gives_up_first(self):
        lost = []
        lock = Lock("log", client=self.client, ttl=2.0, on_lost=lost.append).acquire()
        acquired = time.monotonic()
        self.pause(self.pids.values())
        time.sleep(max(0.0, acquired + 2.0 - time.monotonic()))
        self.assertFalse(lock.held, "by now the service may have given it to another")
        self.assertTrue(lock.wait_lost(0))
        self.until(lambda: len(lost) == 1)
        self.resume()
        self.client.budget = 30
        with self.assertRaises(LockLost):
            lock.release()
        with lock:  # a new grant
            lock.append("log.txt", b"again")


@needs_time
class FaultsTest(Case):
    def test_appends_over_a_pause(self):
        """A primary that is paused, and wakes up again, loses and doubles nothing."""
        with Lock("log", client=self.client, ttl=30) as lock:
            for i in range(300):
                if i in (50, 150):
                    self.pause([self.pids[self.primary()]])
                if i in (120, 220):
                    self.resume()
                lock.append("log.txt", f"line {i}\n")
        self.assertEqual(self.client.read("log.txt").decode().splitlines(), [f"line {i}" for i in range(300)])

    def test_appends_over_broken_connections(self):
        proxies = [Lossy(e, i, 0.05) for i, e in enumerate(self.endpoints)]
        for p in proxies:
            self.addCleanup(p.close)
        client = self.new_client([p.endpoint for p in proxies], budget=30)
        with Lock("log", client=client) as lock:
            for i in range(300):
                if i == 150:
                    self.kill_primary()
                lock.append("log.txt", f"line {i}\n")
        self.assertGreater(sum(p.broken for p in proxies), 30)
        self.assertEqual(self.client.read("log.txt").decode().splitlines(), [f"line {i}" for i in range(300)])

    def test_unknown_outcomes_are_settled(self):
        """Where most connections break, and calls give up early, each line is there once all the same."""
        proxies = [Lossy(e, 10 + i, 0.4) for i, e in enumerate(self.endpoints)]
        for p in proxies:
            self.addCleanup(p.close)
        client = self.new_client([p.endpoint for p in proxies], budget=30)
        unknown = 0
        with Lock("log", client=client) as lock:
            for i in range(60):
                client.budget, done = 0.03, None
                while done is None:
                    try:
                        done = lock.append("log.txt", f"line {i}\n")
                    except Unavailable:
                        continue  # nothing was sent
                    except UnknownOutcome as e:
                        unknown, client.budget = unknown + 1, 30
                        done, client.budget = client.settle(e), 0.03
            client.budget = 30
        self.assertGreater(unknown, 5)
        self.assertEqual(self.client.read("log.txt").decode().splitlines(), [f"line {i}" for i in range(60)])

    def test_many_processes_over_a_kill(self):
        """A counter in a file that nothing but the lock protects."""
        name = os.path.join(os.path.dirname(self.volume), "counter")
        with open(name, "w") as f:
            f.write("0")
        code = """
import sys, holdfast
for _ in range(25):
    with holdfast.Lock("counter") as lock:
        n = int(open(sys.argv[1]).read())
        with open(sys.argv[1], "w") as f:
            f.write(str(n + 1))
        lock.append("counter.txt", f"{n}\\n")
"""
        all_ = [self.python(code, name) for _ in range(4)]
        time.sleep(1)
        self.kill_primary()
        self.assertEqual([p.wait(120) for p in all_], [0] * 4)
        with open(name) as f:
            self.assertEqual(f.read(), "100")
        self.assertEqual(self.client.read("counter.txt").decode().split(), [str(i) for i in range(100)])

    def test_wait_over_a_kill(self):
        mine = Lock("a", client=self.client).acquire()
        other = Lock("a", client=self.new_client())
        thread = threading.Thread(target=other.acquire)
        thread.start()
        self.until(lambda: self.client.info("a").get("queue_length"))
        self.kill_primary()
        self.primary()
        self.assertEqual(self.client.info("a").get("queue_length"), 1)
        mine.release()
        thread.join(30)
        self.assertTrue(other.held)
        self.assertGreater(other.token, mine.token)
        other.release()

    def test_watch_over_a_kill(self):
        tokens = []
        w = self.client.watch(lock="a", kinds=["grant"])
        self.assertEqual(next(w).kind, "reset")
        client = self.new_client()
        for i in range(20):
            if i == 10:
                self.kill_primary()
            with Lock("a", client=client) as lock:
                tokens.append(lock.token)
        while tokens:
            e = next(w)
            if e.kind == "grant":
                self.assertEqual(e.token, tokens.pop(0))
            elif e.kind == "reset":  # the next server cannot go on from there: the state has what was before its LSN
                tokens = [t for t in tokens if t > e.lsn]

    def test_killed_holder(self):
        p = self.python('import holdfast, time\nwith holdfast.Lock("a", ttl=2):\n    print("held")\n    time.sleep(1000)')
        self.assertEqual(p.stdout.readline(), "held\n")
        self.assertFalse(Lock("a", client=self.client).try_acquire())
        p.kill()
        with Lock("a", client=self.client, wait=20):
            pass

    def test_paused_holder_wakes_up_after_its_successor(self):
        p = self.python(
            """
import holdfast, sys
lock = holdfast.Lock("a", ttl=2).acquire()
lock.append("log.txt", "first\\n")
print(lock.token)
while not lock.wait_lost(0.05):
    pass
print(lock.held)
try:
    lock.append("log.txt", "stale\\n")
except holdfast.LockLost:
    print("refused")
"""
        )
        token = int(p.stdout.readline())
        self.pause([p.pid])
        with Lock("a", client=self.client, wait=20) as lock:
            lock.append("log.txt", "second\n")
            self.assertGreater(lock.token, token)
            self.resume()
            self.assertEqual(p.stdout.read().split(), ["False", "refused"])
        self.assertEqual(self.client.read("log.txt"), b"first\nsecond\n")

    def test_election_over_kills(self):
        """Leaders that are killed have successors, in terms that rise."""
        code = """
import holdfast, time
def lead(term):
    print(term.token)
    while not term.wait_lost(0.1):
        pass
holdfast.Election("e", ttl=2).run(lead)
"""
        last = 0
        for i in range(3):
            p = self.python(code)
            token = int(p.stdout.readline())
            self.assertGreater(token, last)
            if i == 1:
                self.kill_primary()
            last = token
            self.assertEqual(Election("e", client=self.client).leader().pid, p.pid)
            p.kill()


@needs_time
class SecureTest(Case):
    flags = ("--secure",)

    def new_client(self, endpoints=None, **options):
        return super().new_client(endpoints or self.volume, **{"credential": self.key(), **options})

    def key(self):
        if not hasattr(self, "_key"):
            made = subprocess.run([BINARY, "key", "create", "tester", "--volume", self.volume], check=True, capture_output=True, text=True)
            self._key = made.stdout.split()[0]
        return self._key

    def test_by_path_join_string_and_certificate(self):
        addresses = ",".join(self.endpoints)
        ca = os.path.join(self.volume, "ca.crt")
        joined = self.said["join"] if sys.version_info >= (3, 10) else self.volume
        for i, (endpoints, options) in enumerate([(self.volume, {}), (joined, {}), (addresses, {"ca": ca})]):
            client = self.new_client(endpoints, **options)
            with Lock("secret/a", client=client) as lock:
                lock.append("a.txt", str(i))
            c = client.transport.connect(client.servers.current(), 2)
            self.assertIsInstance(c.sock, ssl.SSLSocket)
            c.close()
            self.assertEqual(client.get("/v1/whoami")["identity"], "service:tester")
        self.assertEqual(self.new_client().read("a.txt"), b"012")
        self.kill_primary()
        with Lock("secret/a", client=self.new_client(joined)) as lock:
            lock.append("a.txt", "3")

    def test_who_is_not_a_server_of_the_cluster_gets_nothing(self):
        wrong = os.path.join(os.path.dirname(self.volume), "wrong")
        subprocess.run([BINARY, "init", "--volume", wrong, "--server", "1=127.0.0.1:1"], check=True, capture_output=True)
        for endpoints, options in [
            (self.said["join"][:-43] + "A" * 43, {}),
            (",".join(self.endpoints), {"ca": os.path.join(wrong, "ca.crt")}),
            ("https://" + ",".join(self.endpoints), {}),
        ]:
            with self.assertRaises((Unavailable, HoldfastError)) as e:
                self.new_client(endpoints, budget=1.0, **options).get("/v1/whoami")
            self.assertRegex(str(e.exception), "not a server of this cluster|needs Python 3.10")
        with self.assertRaises(Unauthenticated):
            Lock("secret/a", client=self.new_client(credential="")).acquire()
        with self.assertRaises(Unauthenticated):
            Lock("secret/a", client=self.new_client(credential="hfk_wrong")).acquire()

    def test_paused_primary(self):
        with Lock("log", client=self.client) as lock:
            for i in range(60):
                if i == 20:
                    self.pause([self.pids[self.primary()]])
                lock.append("log.txt", f"line {i}\n")
            self.resume()
        self.assertEqual(self.client.read("log.txt").decode().splitlines(), [f"line {i}" for i in range(60)])

    def test_process_that_ends_gives_back_what_it_holds(self):
        p = self.python(
            """
import holdfast, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
lock = holdfast.Lock("a", client=holdfast.Client(sys.argv[1], credential=sys.argv[2])).acquire()
print("held")
signal.pause()
""",
            self.volume,
            self.key(),
        )
        self.assertEqual(p.stdout.readline(), "held\n")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(20), 0)
        self.assertTrue(Lock("a", client=self.client).try_acquire())


@needs_time
@unittest.skipUnless(shutil.which("openssl"), "needs openssl, to make certificates")
class CertificatesTest(unittest.TestCase):
    """One server, with certificates of another authority than the volume's, and a socket of the filesystem."""

    def setUp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        self.dir = d.name
        self.address = f"127.0.0.1:{BASE_PORT}"
        self.make("ca", "/CN=our authority", ["-x509"])
        self.issue("client", "/CN=db", "extendedKeyUsage=clientAuth")
        self.issue("server", "/CN=server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.run_("init", "--volume", self.path("volume"), "--server", "1=" + self.address)
        log = open(self.path("log"), "w")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            [BINARY, "server", "--id", "1", "--volume", self.path("volume"), "--data-dir", self.path("data"), "--unix", self.path("sock"),
             "--client-ca", self.path("ca.pem"), "--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key")],
            stdout=log, stderr=log, preexec_fn=dies_with_parent,
        )  # fmt: skip
        self.addCleanup(lambda: (server.kill(), server.wait()))

    def path(self, name):
        return os.path.join(self.dir, name)

    def run_(self, *args):
        subprocess.run([BINARY, *args], check=True, capture_output=True)

    def openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)

    def make(self, name, subject, more):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(name + ".key")]
        self.openssl("req", *key, *more, "-subj", subject, "-out", self.path(name + ".pem"))

    def issue(self, name, subject, extension):
        self.make(name, subject, [])
        with open(self.path("extension"), "w") as f:
            f.write(extension)
        by = ["-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), "-CAcreateserial", "-extfile", self.path("extension")]
        self.openssl("x509", "-req", "-in", self.path(name + ".pem"), *by, "-out", self.path(name + ".pem"))

    def identity(self, endpoints, **options):
        """Who the server takes this client for, after it has locked and appended."""
        client = Client(endpoints, **{"credential": "", "budget": 30, **options})
        self.addCleanup(client.close, 0.2)
        with Lock("a", client=client) as lock:
            lock.append("a.txt", b"x")
        return client.get("/v1/whoami")["identity"]

    def test_each_way_to_connect(self):
        client = (self.path("client.pem"), self.path("client.key"))
        self.assertEqual(self.identity(self.path("volume"), certificate=client), "cert:db")
        self.assertEqual(self.identity("unix://" + self.path("sock")), "user:" + pwd.getpwuid(os.getuid()).pw_name)
        os.environ["SSL_CERT_FILE"] = self.path("ca.pem")
        self.addCleanup(os.environ.pop, "SSL_CERT_FILE")
        self.assertEqual(self.identity("https://localhost:" + self.address.split(":")[1], certificate=client), "cert:db")
        with self.assertRaisesRegex(Unavailable, "not a server of this cluster"):
            os.environ["SSL_CERT_FILE"] = self.path("volume/ca.crt")
            self.identity("https://localhost:" + self.address.split(":")[1], budget=1.0)
