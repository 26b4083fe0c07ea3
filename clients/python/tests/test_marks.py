# SPDX-License-Identifier: Apache-2.0
"""What a lock remembers: what is done once, and who had it last."""

import asyncio
import os
import unittest

from fake import DROP, LOSE, Case
from holdfast import AlreadyDone, ConfigError, InvalidArgument, Lock, LockChanged, LockLost, OtherLimit, Unavailable, UnknownOutcome
from holdfast.aio import AsyncLock


class OnceTest(Case):
    def lock(self, slot="day-1", **options):
        return Lock("a", client=self.client, once=slot, **options)

    def test_is_done_once(self):
        with self.lock() as lock:
            lock.done()
            self.assertFalse(lock.held)
            lock.done()  # again is no error
            lock.release()
        self.assertEqual([f.get("done") for f in self.table.of("release")], [True])
        self.assertEqual(self.table.of("acquire")[0]["once"], "day-1")
        for slot in ("day-0", "day-1"):
            with self.assertRaises(AlreadyDone):
                self.lock(slot).acquire()
        with self.assertRaises(AlreadyDone):
            self.lock().try_acquire()
        with self.lock("day-2"):
            pass

    def test_what_failed_is_not_done(self):
        with self.assertRaises(KeyError):
            with self.lock():
                raise KeyError
        self.assertEqual([f.get("done") for f in self.table.of("release")], [None])
        with self.lock() as lock:
            lock.done()

    def test_released_is_not_done(self):
        lock = self.lock().acquire()
        lock.release()
        with self.assertRaisesRegex(ConfigError, "is not marked as done"):
            lock.done()
        self.assertEqual((self.table.done, len(self.table.of("release"))), ({}, 1))

    def test_lost_is_not_done(self):
        clock = self.set_clock()
        lock = self.lock().acquire()
        self.table.script["keepalive"] = [DROP] * 10000
        clock.added += 60
        with self.assertRaises(LockLost):
            lock.done()
        self.assertEqual((self.table.locks, self.table.done), ({}, {}))

    def test_ended_by_the_service_is_not_done(self):
        lock = self.lock().acquire()
        self.table.locks.clear()
        with self.assertRaises(LockLost):
            lock.done()
        self.assertEqual(self.table.done, {})

    def test_lost_answers(self):
        lock = self.lock().acquire()
        self.table.script["release"] = [LOSE, DROP, LOSE]
        lock.done()
        self.assertEqual(len({f["request_id"] for f in self.table.of("release")}), 1)
        self.assertEqual(self.table.done, {"a": "day-1"})

    def test_again_makes_the_first_one_certain(self):
        """What was executed is not taken for a loss, and what was not is done after all."""
        for slot, step in (("day-1", LOSE), ("day-2", DROP)):
            self.client.budget = 0.3
            lock = self.lock(slot).acquire()
            self.table.script["release"] = [step] * 1000
            with self.assertRaises(UnknownOutcome):
                lock.done()
            self.assertEqual(self.table.done.get("a") == slot, step == LOSE)
            self.table.script.clear()
            self.client.budget = 10.0
            lock.done()
            self.assertEqual(self.table.done, {"a": slot})
            self.assertEqual(len([op for op, f in self.table.executed if op == "release" and f.get("done")]), 1 if slot == "day-1" else 2)

    def test_again_without_a_server_before(self):
        self.client.budget = 0.2
        lock = self.lock().acquire()
        self.table.script["release"] = [(503, {"status": "NO_QUORUM"})] * 1000
        with self.assertRaises(Unavailable):
            lock.done()
        self.table.script.clear()
        lock.done()
        self.assertEqual(self.table.done, {"a": "day-1"})

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_child_has_done_nothing(self):
        """Also where its parent was about to say so when it forked."""
        self.client.budget = 0.2
        lock = self.lock().acquire()
        self.table.script["release"] = [(503, {"status": "NO_QUORUM"})] * 1000
        with self.assertRaises(Unavailable):
            lock.done()
        self.table.script.clear()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                lock.done()
            except LockLost:
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(self.table.done, {})
        lock.done()

    def test_wrong_arguments(self):
        for options in ({"once": ""}, {"once": "1", "shared": True}, {"after_token": 0}, {"after_token": 7, "wait": 1}):
            with self.assertRaises(ConfigError):
                Lock("a", client=self.client, **options).acquire()
        with self.assertRaises(ConfigError):
            Lock("a", client=self.client, after_token=7).acquire(None)
        with Lock("a", client=self.client) as lock:
            with self.assertRaisesRegex(ConfigError, "without once"):
                lock.done()
            self.assertTrue(lock.held)

    def test_asyncio(self):
        async def work():
            async with AsyncLock("a", client=self.client, once="1") as lock:
                await lock.done()

        asyncio.run(work())
        self.assertEqual(self.table.done, {"a": "1"})


class LimitTest(Case):
    def test_permits(self):
        with Lock("a", client=self.client, limit=3, weight=2):
            pass
        asked = self.table.of("acquire")[0]
        self.assertEqual((asked["limit"], asked["weight"], asked["mode"]), (3, 2, "exclusive"))
        self.table.limit = 4
        with self.assertRaises(OtherLimit):
            Lock("a", client=self.client, limit=3).acquire()

    def test_grant_without_its_limit_is_given_back(self):
        """A server that does not know limits grants the lock to one alone, or to any number: that is no permit."""
        self.table.old = True
        with self.assertRaisesRegex(InvalidArgument, "older version"):
            Lock("a", client=self.client, limit=3).acquire()
        self.until(lambda: not self.table.locks)

    def test_what_cannot_be(self):
        for options in ({"limit": 0}, {"limit": 2, "weight": 3}, {"limit": 2, "weight": 0}, {"weight": 2}, {"limit": 2, "shared": True}, {"limit": 2, "once": "1"}):
            with self.assertRaises(ConfigError):
                Lock("a", client=self.client, **options)


class RememberTest(Case):
    def test_after_token(self):
        with Lock("a", client=self.client, remember=True) as first:
            pass
        with Lock("a", client=self.client, after_token=first.token) as next_:
            self.assertGreater(next_.token, first.token)
        asked = self.table.of("acquire")
        self.assertEqual((asked[0]["remember"], asked[1]["after_token"], asked[1]["wait"]), (True, first.token, "0ms"))
        with self.assertRaises(LockChanged):
            Lock("a", client=self.client, after_token=first.token).acquire()

    def test_grant_without_its_condition_is_given_back(self):
        """A server that does not know what a lock remembers grants it on no condition: that is no grant for who set one."""
        self.table.old = True
        for options in ({"once": "1"}, {"remember": True}, {"after_token": 7, "wait": 0}):
            self.table.last["a"] = 7
            with self.assertRaisesRegex(InvalidArgument, "older version"):
                Lock("a", client=self.client, **options).acquire()
            self.until(lambda: not self.table.locks)
        with Lock("a", client=self.client):
            pass
