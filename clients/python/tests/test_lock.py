# SPDX-License-Identifier: Apache-2.0
"""A lock that is held, kept alive, lost and released."""

import os
import threading
import unittest

from fake import DROP, HANG, LOSE, Case
from holdfast import FileSealed, Lock, LockLost, OffsetMismatch
from holdfast import _keeper
from holdfast._client import Answer


class HeldTest(Case):
    def test_life(self):
        lock = Lock("a", client=self.client, metadata="night shift")
        self.assertFalse(lock.held)
        with lock as got:
            self.assertIs(got, lock)
            self.assertTrue(lock.held)
            self.assertTrue(lock.verify())
            self.assertEqual(lock.token, self.table.locks["a"][0])
            self.assertGreater(lock.remaining, 20)
            self.assertFalse(lock.in_jeopardy)
            self.assertFalse(lock.wait_lost(0.01))
            first = lock.token
        self.assertFalse(lock.held)
        self.assertEqual(lock.remaining, 0)
        self.assertTrue(lock.wait_lost(1))
        self.assertEqual(self.table.locks, {})
        lock.release()  # again is no error
        self.assertEqual(len(self.table.of("release")), 1)
        asked = self.table.of("acquire")[0]
        self.assertEqual((asked["wait"], asked["ttl"], asked["mode"], asked["metadata"]), ("forever", "30000ms", "exclusive", "night shift"))
        self.assertEqual(asked["holder"]["pid"], os.getpid())
        with lock:
            self.assertGreater(lock.token, first)

    def test_error_of_the_block_goes_on(self):
        with self.assertRaises(KeyError):
            with Lock("a", client=self.client):
                raise KeyError
        self.assertEqual(self.table.locks, {})

    def test_acquire_in_a_with_statement(self):
        with Lock("a", client=self.client, wait=0).acquire(5) as lock:
            self.assertTrue(lock.held)
        self.assertEqual((self.table.locks, len(self.table.of("acquire"))), ({}, 1))

    def test_shared(self):
        with Lock("a", client=self.client, shared=True):
            self.assertEqual(self.table.of("acquire")[0]["mode"], "shared")

    def test_refused_appends(self):
        with Lock("a", client=self.client) as lock:
            lock.append("f", "abc", at=0)
            with self.assertRaises(OffsetMismatch) as e:
                lock.append("f", "abc", at=0)
            self.assertEqual(e.exception.offset, 3)
            self.table.script["append"] = [(409, {"status": "FILE_SEALED"})]
            with self.assertRaises(FileSealed):
                lock.append("f", "abc", adopt_existing=True)
            self.assertEqual(self.table.of("append")[-1]["adopt_existing"], "true")
            self.assertTrue(lock.held)

    def test_unreachable_service_at_the_end_is_no_error(self):
        with self.assertLogs("holdfast", "WARNING"):
            with Lock("a", client=self.client):
                self.client.budget = 0.2
                self.table.script["release"] = [DROP] * 1000
        self.table.script.clear()

    def test_lost_answer_to_a_release(self):
        with Lock("a", client=self.client):
            self.table.script["release"] = [LOSE]

    def test_close_releases(self):
        lock = Lock("a", client=self.client).acquire()
        self.client.close()
        self.assertEqual(self.table.locks, {})
        self.assertFalse(lock.held)


class LossTest(Case):
    def setUp(self):
        super().setUp()
        self.lost = []
        self.clock = self.set_clock()

    def acquire(self, ttl=10.0, **options):
        return Lock("a", client=self.client, ttl=ttl, on_lost=self.lost.append, **options).acquire()

    def cut_off(self):
        self.table.script["keepalive"] = [DROP] * 10000

    def test_lease_ends_on_this_clock(self):
        """Whatever the network and the threads do, a lease that may have ended is not held."""
        lock = self.acquire()
        self.cut_off()
        self.clock.added += 5.5
        self.assertTrue(lock.in_jeopardy)
        self.assertTrue(lock.held)
        self.clock.added += 4.45  # less than the TTL: the margin counts
        self.assertFalse(lock.held)
        self.assertEqual(lock.remaining, 0)
        with self.assertRaisesRegex(LockLost, "no renewal was answered in time"):
            lock.check()
        with self.assertRaises(LockLost):
            lock.append("f", b"x")
        self.assertEqual(self.table.of("append"), [])
        self.assertTrue(lock.wait_lost(0))
        with self.assertRaises(LockLost):
            lock.release()
        self.assertEqual(self.table.locks, {}, "others wait for a lease that nobody has")
        self.assertEqual([(e.lock, e.token) for e in self.lost], [("a", lock.token)])

    def test_the_thread_notices_by_itself(self):
        lock = self.acquire()
        self.cut_off()
        self.clock.added += 20
        self.until(lambda: self.lost)
        self.assertIn("may have ended", str(self.lost[0]))
        self.assertTrue(lock.wait_lost(0))

    def test_end_of_the_block_says_so(self):
        for error in (None, KeyError("x")):
            with self.assertRaises(LockLost if error is None else KeyError):
                with self.acquire():
                    self.clock.added += 20
                    if error is not None:
                        raise error
        self.assertEqual(len(self.lost), 2)

    def test_a_block_begins_only_with_what_is_held(self):
        lock = self.acquire()
        self.clock.added += 20
        with self.assertRaises(LockLost):
            with lock:
                self.fail("it began")

    def test_late_answer_does_not_revive(self):
        lock = self.acquire()
        grant = lock._grant
        self.clock.added += 20
        self.client.keeper.keep_alive(grant.who, 10)
        self.assertFalse(lock.held)
        self.assertEqual(len(self.lost), 1)

    def test_renewals_count_from_when_they_were_sent(self):
        lock = self.acquire()
        before = self.table.do_keepalive

        def slow(fields, data):
            self.table.do_keepalive = before
            self.clock.added += 2  # less than after what the keeper renews by itself
            return before(fields, data)

        self.table.do_keepalive = slow
        self.client.keeper.keep_alive(lock._grant.who, 10)
        self.assertLess(lock.remaining, 8.0)
        self.assertGreater(lock.remaining, 6.7)

    def test_answer_to_acquire_counts_from_when_it_was_sent(self):
        before = self.table.do_acquire

        def slow(fields, data):
            self.clock.added += 1
            return before(fields, data)

        self.table.do_acquire = slow
        lock = self.acquire()
        self.assertLess(lock.remaining, 9.0)
        self.assertEqual(self.table.of("renew"), [])

    def test_grant_after_a_long_wait_is_renewed_first(self):
        before = self.table.do_acquire

        def slow(fields, data):
            self.clock.added += 9.95
            return before(fields, data)

        self.table.do_acquire = slow
        lock = self.acquire()
        self.assertGreater(lock.remaining, 9.0)
        self.assertEqual(self.lost, [])

    def test_repeated_grant_has_what_is_left(self):
        lock = Lock("a", client=self.client, ttl=10)
        for ttl, most in (("3s", 3.0), ("", 0.0), ("1h", 10.0)):
            grant = lock.make_grant(None, Answer({"status": "OK", "token": 5, "ttl": ttl, "repeat": True}, self.clock()))
            self.assertLessEqual(grant.left(), most)
            self.assertGreaterEqual(grant.left(), most - 0.5)

    def test_what_the_service_has_ended(self):
        lock = self.acquire()
        del self.table.locks["a"]
        self.renew_now()
        self.until(lambda: self.lost)
        self.assertFalse(lock.held)
        self.assertIn("the service has ended it", str(self.lost[0]))

    def test_another_token_is_not_this_one(self):
        lock = self.acquire()
        self.table.locks["a"] = (self.table.next(), "@99")
        with self.assertRaises(LockLost):
            lock.append("f", b"x")
        self.assertEqual(len(self.lost), 1)
        with self.assertRaises(LockLost):
            lock.release()
        self.assertIn("a", self.table.locks)

    def test_forgotten_client(self):
        lock = self.acquire()
        self.table.script["keepalive"] = [(409, {"status": "STALE_REQUEST"})]
        self.renew_now()
        self.until(lambda: self.lost)
        self.assertFalse(lock.held)

    def test_mistake_in_a_callback(self):
        def wrong(_):
            raise KeyError

        other = Lock("b", client=self.client, on_lost=wrong).acquire()
        lock = self.acquire()
        del self.table.locks["b"]
        with self.assertLogs("holdfast", "ERROR"):
            self.renew_now()
            self.until(lambda: not other.held)
        self.renew_now()
        self.assertTrue(lock.held)
        lock.release()

    def test_after_a_loss_it_can_be_acquired_again(self):
        lock = self.acquire()
        first = lock.token
        self.clock.added += 20
        with self.assertRaises(LockLost):
            lock.release()
        with lock:
            self.assertTrue(lock.held)
            self.assertGreater(lock.token, first)


class KeepAliveTest(Case):
    def test_lease_outlives_its_ttl(self):
        with Lock("a", client=self.client, ttl=3.0) as lock:
            self.until(lambda: len(self.table.of("keepalive")) > 3)
            lock.check()
        asked = self.table.of("keepalive")[0]
        self.assertEqual(asked["held"], _keeper._HELD_UNKNOWN, "the service does not list what it has")

    def test_lost_keepalives_are_tried_again(self):
        clock = self.set_clock()
        self.client.attempt = 0.2
        with Lock("a", client=self.client) as lock:
            clock.added += 9
            for step in (DROP, LOSE, HANG):
                self.table.script["keepalive"] = [step]
                self.renew_now()
                self.until(lambda: lock.remaining > 25)

    def test_place_in_the_queue_is_kept(self):
        with Lock("a", client=self.new_client()) as theirs:
            mine = Lock("a", client=self.client)
            thread = threading.Thread(target=mine.acquire)
            thread.start()
            self.until(lambda: len(self.table.of("acquire")) == 2)
            self.renew_now()
            self.assertIn(self.table.of("acquire")[1]["client_id"], [f["client_id"] for f in self.table.of("keepalive")])
            theirs.check()
        thread.join()
        mine.release()

    def test_stray_grant_is_released(self):
        """A grant that this client has without a lock, such as one whose release failed, is given back, and no other."""
        with Lock("a", client=self.client, wait=0) as lock:
            who = self.table.locks["a"][1]
            self.table.locks["stray"] = (self.table.next(), who)
            self.table.locks["foreign"] = (self.table.next(), "@99")
            self.renew_now()
            self.until(lambda: "stray" not in self.table.locks)
            self.renew_now()
            self.assertIn("foreign", self.table.locks)
            lock.check()

    def test_the_shortest_lease_sets_the_pace(self):
        with Lock("a", client=self.client, wait=0, ttl=600), Lock("b", client=self.client, wait=0, ttl=3.0):
            self.until(lambda: len(self.table.of("keepalive")) > 1, 5)


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class ForkTest(Case):
    def test_child_holds_nothing_of_its_parent(self):
        with Lock("a", client=self.client) as lock:
            pid = os.fork()
            if pid == 0:
                os._exit(self.child(lock))
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            lock.check()
            self.assertIn("a", self.table.locks)
            lock.append("f", b"parent")
        opened = {f["nonce"] for f in self.table.of("open")}
        self.assertEqual(len(opened), 3, "the child is no client of its own")

    def child(self, lock):
        try:
            if lock.held:
                return 1
            try:
                lock.release()
                return 2
            except LockLost:
                pass
            with Lock("b", client=self.client):
                return 0 if not Lock("a", client=self.client).try_acquire() else 3
        except BaseException:
            return 4


class ThreadTest(Case):
    def test_close_joins_what_has_only_begun(self):
        begun, go_on, ran = threading.Event(), threading.Event(), threading.Event()
        start = threading.Thread.start

        def late(thread):
            if thread.name == "holdfast work":
                begun.set()
                go_on.wait(0.3)  # nobody sets it where close waits for the start
            start(thread)

        threading.Thread.start = late
        self.addCleanup(setattr, threading.Thread, "start", start)
        starter = threading.Thread(target=self.client.later, args=(ran.set, "work"))
        starter.start()
        self.assertTrue(begun.wait(10))
        self.client.close()
        go_on.set()
        starter.join(10)
        self.assertTrue(ran.wait(10))

    def test_threads_exclude_each_other(self):
        inside, most, all_ = [], [], []

        def work():
            for _ in range(5):
                with Lock("a", client=self.client):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()

        for _ in range(4):
            all_.append(threading.Thread(target=work))
            all_[-1].start()
        for thread in all_:
            thread.join()
        self.assertEqual((len(most), max(most)), (20, 1))
