# SPDX-License-Identifier: Apache-2.0
"""Watches, elections, asyncio, the spelling of filelock, and the wheel."""

import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

from fake import Case
from holdfast import Abort, Aborted, Election, FileLock, Lock, LockLost, PermissionDenied, Timeout, Unavailable
from holdfast.aio import AsyncLock

HERE = pathlib.Path(__file__).resolve().parent.parent


def message(id_, **body):
    return f"event: {body['kind']}\nid: {id_}\ndata: {json.dumps(body)}\n\n".encode()


def reset(part, last, *locks):
    return message("7" if last else "reset", kind="reset", lsn=7 if last else 0, reset={"part": part, "last": last, "locks": [{"lock": n} for n in locks]})


class WatchTest(Case):
    def stream(self, *streams):
        self.table.script["/v1/watch"] = list(streams)

    def asked(self, i):
        return self.table.of("/v1/watch")[i]

    def test_goes_on_where_it_was(self):
        self.stream(
            b"retry: 783\n\n" + reset(0, False, "a") + reset(1, True, "b") + b": alive\nid: 9\n\n",
            message(10, kind="grant", lsn=10, lock="a", token=10, holder={"client_id": "@3"}) + b"event: release\nid: 11\ndata: {\"kind\":",
            message(11, kind="bookmark", lsn=11) + message(12, kind="append", lsn=12, file="f", length=3),
        )
        w = self.client.watch(prefix="a", kinds=["grant", "append"])
        first, second, third = next(w), next(w), next(w)
        self.assertEqual((first.kind, first.lsn, [x["lock"] for x in first.locks]), ("reset", 7, ["a", "b"]))
        self.assertEqual((second.kind, second.token, second.holder.client_id), ("grant", 10, "@3"))
        self.assertEqual((third.kind, third.file, third.length, third.holder), ("append", "f", 3, None))
        w.close()
        self.assertEqual((self.asked(0)["prefix"], self.asked(0)["kinds"]), ("a", "grant,append"))
        self.assertNotIn("last-event-id", self.asked(0))
        self.assertEqual([self.asked(i)["last-event-id"] for i in (1, 2)], ["9", "10"])

    def test_reset_that_breaks_off_begins_anew(self):
        self.stream(reset(0, False, "a", "b"), reset(0, True, "c"))
        event = next(self.client.watch())
        self.assertEqual([x["lock"] for x in event.locks], ["c"])
        self.assertEqual(self.asked(1)["last-event-id"], "reset")

    def test_after(self):
        self.stream(message(6, kind="release", lsn=6))
        self.assertEqual(next(self.client.watch(lock="a", after=5)).kind, "release")
        self.assertEqual((self.asked(0)["last-event-id"], self.asked(0)["lock"]), ("5", "a"))

    def test_ends(self):
        self.stream(message(3, kind="end", status="SERVER_FENCING", retry_after="1ms"), (503, {"status": "NO_QUORUM"}), (403, {"status": "PERMISSION_DENIED"}))
        with self.assertRaises(PermissionDenied):
            next(self.client.watch())
        self.client.budget = 0.2
        self.stream(*[b""] * 1000)
        with self.assertRaises(Unavailable):
            next(self.client.watch())

    def test_abort(self):
        self.stream("hang")
        abort = Abort()
        threading.Timer(0.1, abort.set).start()
        with self.assertRaises(Aborted):
            next(self.client.watch(abort=abort))


class ElectionTest(Case):
    def test_one_leads_at_a_time(self):
        terms = []

        def lead(term):
            terms.append(term.token)
            self.assertEqual(self.table.locks["e"][0], term.token)
            return len(terms)

        elections = [Election("e", client=self.new_client()) for _ in range(3)]
        threads = [threading.Thread(target=e.run, args=(lead,)) for e in elections]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(terms, sorted(set(terms)))
        self.assertEqual(len(terms), 3)

    def test_stands_again_after_a_loss(self):
        terms = []

        def lead(term):
            terms.append(term.token)
            if len(terms) == 1:
                del self.table.locks["e"]
                self.renew_now()
                self.assertTrue(term.wait_lost(20))
            return "done"

        with self.assertLogs("holdfast", "WARNING"):
            self.assertEqual(Election("e", client=self.client).run(lead), "done")
        self.assertEqual(len(terms), 2)

    def test_error_of_work_resigns(self):
        with self.assertRaises(KeyError):
            Election("e", client=self.client).run(lambda term: {}["x"])
        self.assertEqual(self.table.locks, {})

    def test_stop_ends_a_wait(self):
        with Lock("e", client=self.new_client()):
            e = Election("e", client=self.client)
            threading.Timer(0.1, e.stop).start()
            self.assertIsNone(e.run(lambda term: 1))
            self.assertTrue(e.stopped)
        self.until(lambda: not self.table.locks)


class FileLockTest(Case):
    def lock(self, **options):
        return FileLock("/share/x.lock", client=self.client, **options)

    def test_is_reentrant_in_one_thread(self):
        lock = self.lock()
        with lock:
            with lock.acquire() as inner:
                self.assertEqual(inner.lock_counter, 2)
            with lock:
                self.assertEqual(lock.lock_counter, 2)
            self.assertTrue(lock.is_locked)
            self.assertEqual(list(self.table.locks), ["share/x.lock"])
        self.assertFalse(lock.is_locked)
        self.assertEqual(self.table.locks, {})
        lock.release()
        lock.acquire()
        lock.acquire()
        lock.release(force=True)
        self.assertEqual(self.table.locks, {})

    def test_block_may_release_it(self):
        lock = self.lock()
        with lock:
            lock.release()
        with lock:
            self.assertEqual(lock.lock_counter, 1)

    def test_excludes_other_threads_and_objects(self):
        lock, seen = self.lock(timeout=0.05), []

        def other():
            try:
                lock.acquire()
            except Timeout as e:
                seen.append(e)

        with lock:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            for options in ({"timeout": 0.05}, {"blocking": False}):
                with self.assertRaises(Timeout):
                    self.lock(**options).acquire()
            with self.assertRaises(Timeout):
                self.lock().acquire(timeout=0.01)
        self.assertEqual(len(seen), 1)

    def test_loss(self):
        clock = self.set_clock()
        lock = self.lock()
        with self.assertRaises(LockLost):
            with lock:
                self.table.script["keepalive"] = ["drop"] * 1000
                clock.added += 60
                self.assertFalse(lock.is_locked)
                with self.assertRaises(LockLost):
                    lock.acquire()
        self.assertEqual(lock.lock_counter, 0)


class AsyncTest(Case):
    def test_locks(self):
        async def work():
            async with AsyncLock("a", client=self.client) as lock:
                r = await lock.append("f", b"x")
                self.assertTrue(lock.held)
                self.assertFalse(await lock.wait_lost(0.01))
                return lock.token, r.length

        self.assertEqual(asyncio.run(work())[1], 1)
        self.assertEqual(self.table.locks, {})

    def test_more_waits_than_threads_of_the_loop(self):
        order = []

        async def one(i):
            async with AsyncLock("a", client=self.client):
                order.append(i)

        async def work():
            async with AsyncLock("a", client=self.client):
                tasks = [asyncio.ensure_future(one(i)) for i in range(40)]
                await asyncio.sleep(0.2)
            await asyncio.gather(*tasks)

        asyncio.run(work())
        self.assertEqual(sorted(order), list(range(40)))

    def test_cancelled_wait_leaves_nothing(self):
        async def work():
            waiting = AsyncLock("a", client=self.client)
            task = asyncio.ensure_future(waiting.acquire())
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return waiting

        with Lock("a", client=self.new_client()):
            waiting = asyncio.run(work())
        self.until(lambda: self.table.of("cancel") and not self.table.locks)
        self.assertFalse(waiting.held)


class WheelTest(unittest.TestCase):
    def test_imports(self):
        with tempfile.TemporaryDirectory() as d:
            builds = [subprocess.run([sys.executable, HERE / "build_wheel.py", f"{d}/{i}"], check=True, capture_output=True, text=True).stdout.strip() for i in (1, 2)]
            self.assertEqual(*(pathlib.Path(b).read_bytes() for b in builds))
            with zipfile.ZipFile(builds[0]) as z:
                sources = {f"holdfast/{p.name}" for p in (HERE / "src/holdfast").iterdir() if p.suffix in (".py", ".typed")}
                self.assertLess(sources, set(z.namelist()))
                self.assertIn("Name: holdfast-lock\nVersion: ", z.read(next(n for n in z.namelist() if n.endswith("METADATA"))).decode())
            code = "import holdfast, holdfast.aio; print(holdfast.__file__)"
            shown = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {builds[0]!r}); {code}"], check=True, capture_output=True, text=True)
            self.assertTrue(shown.stdout.startswith(builds[0]), shown.stdout)
