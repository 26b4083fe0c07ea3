# SPDX-License-Identifier: Apache-2.0
"""Requests that are executed at most once, whatever becomes of their answers, and failover."""

import threading

from fake import DROP, HANG, LOSE, Case
from holdfast import Client, ConfigError, InvalidArgument, Limited, Lock, NotAcquired, Refused, Unavailable, UnknownOutcome, WrongCluster
from holdfast import _client, _endpoints


def busy(status, **fields):
    return (503, {"status": status, **fields})


class AppendTest(Case):
    def setUp(self):
        super().setUp()
        self.lock = Lock("a", client=self.client).acquire()
        self.addCleanup(self.lock.release)

    def test_lost_answers_are_asked_for_again(self):
        for step in (LOSE, DROP):
            self.table.script["append"] = [step] * 4
            self.table.log.clear()
            self.table.files.clear()
            r = self.lock.append("f", b"line\n")
            self.assertEqual(self.table.files["f"], b"line\n")
            self.assertEqual((r.length, r.repeat, r.pending), (5, step == LOSE, False))
            ids = {(f["client_id"], f["request_id"]) for f in self.table.of("append")}
            self.assertEqual(len(self.table.of("append")), 5)
            self.assertEqual(len(ids), 1, "a repeat has another request ID")

    def test_each_append_has_a_new_number(self):
        for i in range(3):
            self.lock.append("f", str(i))
        self.assertEqual(self.table.files["f"], b"012")
        numbers = [int(f["request_id"]) for f in self.table.of("append")]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual([int(f["low_water"]) for f in self.table.of("append")], numbers)

    def test_unknown_is_asked_for_again(self):
        self.table.script["append"] = [(504, {"status": "UNKNOWN"})] * 3
        self.assertEqual(self.lock.append("f", b"x").length, 1)

    def test_committed_is_final(self):
        self.table.script["append"] = [(504, {"status": "UNKNOWN", "committed": True, "file": "f", "length": 1, "lsn": 9})]
        r = self.lock.append("f", b"x")
        self.assertTrue(r.pending)
        self.assertEqual(len(self.table.of("append")), 1)

    def test_outcome_that_stays_unknown_is_settled_later(self):
        client = self.client
        client.budget = 0.3
        for step, executed in ((LOSE, True), (DROP, False)):
            self.table.script["append"] = [step] * 1000
            with self.assertRaises(UnknownOutcome) as e:
                self.lock.append("f", b"x")
            self.assertEqual(e.exception.client_id, self.table.of("append")[-1]["client_id"])
            self.table.script.clear()
            self.lock.append("other", b"y")  # the service has to remember the outcome meanwhile
            self.assertEqual(self.table.of("append")[-1]["low_water"], str(e.exception.request_id))
            r = client.settle(e.exception)
            self.assertEqual(r is not None, executed)
            self.assertEqual(self.table.files.get("f", b""), b"x" if executed else b"")
            self.table.files.clear()

    def test_refused_question_settles_nothing(self):
        with Lock("b", client=self.new_client(budget=0.3, attempt=0.1)) as lock:
            self.table.script["append"] = [LOSE] * 20
            with self.assertRaises(UnknownOutcome) as caught:
                lock.append("f", b"x")
            self.table.script["append"] = []
            self.table.script["cancel"] = [(403, {"status": "PERMISSION_DENIED", "message": "no"})]
            with self.assertRaises(Refused):
                self.client.settle(caught.exception)

    def test_refusal_after_a_lost_answer_leaves_it_unknown(self):
        self.table.script["append"] = [LOSE, (400, {"status": "INVALID_ARGUMENT", "message": "no"})]
        with self.assertRaises(UnknownOutcome):
            self.lock.append("f", b"x")
        self.table.script["append"] = [(400, {"status": "INVALID_ARGUMENT", "message": "no"})]
        with self.assertRaises(InvalidArgument):
            self.lock.append("f", b"x")

    def test_not_executed_is_tried_again(self):
        self.table.script["append"] = [busy("SECONDARY_MODE"), busy("SERVER_FENCING", retry_after="20ms"), busy("NO_QUORUM"), busy("STORAGE_UNAVAILABLE")]
        self.assertFalse(self.lock.append("f", b"x").repeat)

    def test_full_storage_is_told(self):
        self.table.script["append"] = [busy("STORAGE_UNAVAILABLE", message="the disk is full")] * 1000
        with self.assertRaisesRegex(Refused, "the disk is full"):
            self.lock.append("f", b"x")

    def test_no_server_in_time(self):
        self.client.budget = 0.3
        self.table.script["append"] = [busy("SECONDARY_MODE")] * 1000
        with self.assertRaisesRegex(Unavailable, "no server did it within 0.3 s"):
            self.lock.append("f", b"x")

    def test_what_is_too_fast_comes_again(self):
        self.client.budget = 0.2
        self.table.script["append"] = [(429, {"status": "LIMITED", "retry_after": "60ms"})] * 6
        self.assertEqual(self.lock.append("f", b"x").length, 1)
        self.table.script["append"] = [(429, {"status": "LIMITED", "message": "as much as it may"})]
        with self.assertRaises(Limited):
            self.lock.append("f", b"x")

    def test_answer_of_something_else(self):
        self.table.script["append"] = [(502, {"error": "a proxy's"})] * 2
        self.assertEqual(self.lock.append("f", b"x").length, 1)
        self.assertEqual(len(self.table.of("append")), 3)


class FailoverTest(Case):
    servers = 3

    def asked(self, address):
        return next(s for s in self.all if s.endpoint == str(address))

    def test_goes_on_at_another_server(self):
        with Lock("a", client=self.client) as lock:
            for i in range(3):
                lock.append("f", str(i))
                if i < 2:
                    self.asked(self.client.servers.current()).close()
                    self.client.transport.close()
            self.assertEqual(self.table.files["f"], b"012")

    def test_paused_server_is_left(self):
        with Lock("a", client=self.client) as lock:
            self.client.attempt = 0.2
            first = self.client.servers.current()
            self.table.script["append"] = [HANG]
            self.assertTrue(lock.append("f", b"x").repeat)
            self.assertNotEqual(self.client.servers.current(), first)
            self.assertEqual(self.table.files["f"], b"x")

    def test_another_cluster_is_refused(self):
        self.client.budget = 0.3
        self.client.ask("verify", {"lock": "a", "token": 1})
        self.table.script["verify"] = [(412, {"status": "INVALID_ARGUMENT", "message": "other cluster"})]
        self.assertFalse(self.client.verify("a", 1), "another server was not asked")
        self.table.script["verify"] = [(412, {"status": "INVALID_ARGUMENT", "message": "other cluster"})] * 1000
        with self.assertRaises(WrongCluster):
            self.client.verify("a", 1)

    def test_all_clients_do_not_begin_at_the_same_server(self):
        self.assertGreater(len({str(Client(self.endpoints, credential="").servers.current()) for _ in range(40)}), 1)


class AcquireTest(Case):
    def test_lost_answer_of_a_grant(self):
        self.table.script["acquire"] = [LOSE]
        with Lock("a", client=self.client) as lock:
            self.assertEqual(lock.token, self.table.locks["a"][0])
            self.assertEqual(len(self.table.of("renew")), 1, "a grant that may be old is renewed first")
        self.assertEqual(self.table.locks, {})

    def test_grant_that_ended_before_its_answer(self):
        self.table.script["acquire"] = [(410, {"status": "LEASE_EXPIRED"})]
        with Lock("a", client=self.client, wait=5) as lock:
            self.assertTrue(lock.held)
        numbers = [f["request_id"] for f in self.table.of("acquire")]
        self.assertEqual(len(set(numbers)), 2, "the next try has the number of the last one")

    def test_forgotten_client_is_opened_anew(self):
        Lock("a", client=self.client, wait=0).acquire().release()
        self.table.script["acquire"] = [(409, {"status": "STALE_REQUEST"})]
        with Lock("a", client=self.client, wait=0):
            self.assertEqual(len(self.table.of("open")), 2)

    def test_open_is_repeated_under_its_nonce(self):
        self.table.script["open"] = [LOSE, LOSE]
        with Lock("a", client=self.client):
            self.assertEqual(len({f["nonce"] for f in self.table.of("open")}), 1)

    def test_held(self):
        other = self.new_client()
        with Lock("a", client=other) as theirs:
            mine = Lock("a", client=self.client)
            self.assertFalse(mine.try_acquire())
            with self.assertRaisesRegex(NotAcquired, "held by .* on elsewhere.*: try later") as e:
                mine.acquire(0)
            self.assertEqual((e.exception.holder.pid, e.exception.lock), (7, "a"))
            with self.assertRaisesRegex(TimeoutError, "within 0.05 s"):
                mine.acquire(0.05)
            theirs.check()
        self.assertTrue(mine.try_acquire())

    def test_refusal_after_a_lost_attempt_is_cancelled(self):
        """An attempt whose fate is unknown may be granted yet: it is cancelled, and what it got is released."""
        self.table.script["acquire"] = [LOSE, (423, {"status": "HELD"})]
        self.assertFalse(Lock("a", client=self.client).try_acquire())
        self.until(lambda: not self.table.locks)
        self.assertEqual(len(self.table.of("cancel")), 1)

    def test_outage_in_doubt_is_cancelled(self):
        self.client.budget = 0.3
        self.table.script["acquire"] = [LOSE] * 1000
        with self.assertRaises(Unavailable):
            Lock("a", client=self.client, wait=0).acquire()
        self.table.script.clear()
        self.until(lambda: not self.table.locks)

    def test_waits_have_identities_of_their_own(self):
        with Lock("a", client=self.client):
            pass
        with Lock("b", client=self.client):
            with Lock("c", client=self.client):
                pass
        clients = [f["client_id"] for f in self.table.of("acquire")]
        self.assertEqual(clients[0], clients[1], "an identity that is free is not used again")
        self.assertNotEqual(clients[1], clients[2])

    def test_a_wait_outlasts_its_attempts(self):
        self.addCleanup(setattr, _client, "_WAITING_ATTEMPT", _client._WAITING_ATTEMPT)
        _client._WAITING_ATTEMPT = 0.1
        theirs = Lock("a", client=self.new_client()).acquire()
        mine = Lock("a", client=self.client)
        waiter = threading.Thread(target=mine.acquire)
        waiter.start()
        self.until(lambda: len(self.table.of("acquire")) > 5)
        theirs.release()
        waiter.join()
        self.assertTrue(mine.held)
        self.assertEqual(len({(f["client_id"], f["request_id"]) for f in self.table.of("acquire")[1:]}), 1)
        self.assertGreater(len(self.table.of("/livez")), 3, "nobody asked whether the silent server lives")
        mine.release()

    def test_a_wait_ends_where_no_server_lives(self):
        self.addCleanup(setattr, _client, "_WAITING_ATTEMPT", _client._WAITING_ATTEMPT)
        _client._WAITING_ATTEMPT = 0.1
        self.client.budget, self.client.attempt = 0.3, 0.1
        self.table.script["acquire"] = [DROP, HANG, HANG, HANG, HANG, HANG, HANG]
        self.table.script["/livez"] = [HANG] * 100
        with self.assertRaises(Unavailable):
            Lock("a", client=self.client).acquire()

    def test_lock_of_this_object(self):
        with Lock("a", client=self.client) as lock:
            with self.assertRaisesRegex(ConfigError, "by this very object"):
                lock.acquire()

    def test_wrong_arguments(self):
        for options in ({"wait": -1}, {"ttl": 0}):
            with self.assertRaises(ConfigError):
                Lock("a", client=self.client, **options)
        with self.assertRaises(ConfigError):
            Lock("a", client=self.client).check()
        with self.assertRaises(ValueError):
            Client("h1", credential="")
        with self.assertRaises(ConfigError):
            Client("h1:1", credential="", budget=0)


class CredentialTest(Case):
    def test_is_shown_to_this_host_only(self):
        client = Client(self.endpoints, credential="hfk_secret")
        self.addCleanup(client.close, 0.2)
        client.get("/v1/status")
        self.assertEqual(self.table.of("/v1/status")[0]["authorization"], "Bearer hfk_secret")
        client.transport.close()
        self.addCleanup(setattr, _endpoints, "_local", _endpoints._local)
        _endpoints._local = lambda _: False
        with self.assertRaisesRegex(ConfigError, "over TLS, or to this host, only") as e:
            client.get("/v1/status")
        self.assertNotIn("secret", str(e.exception))
        self.assertEqual(len(self.table.of("/v1/status")), 1)

    def test_wrong_one(self):
        with self.assertRaises(ConfigError) as e:
            Client(self.endpoints, credential="secret")
        self.assertNotIn("secret", str(e.exception).replace("credential", ""))


class ReadTest(Case):
    def test_reads(self):
        with Lock("a", client=self.client) as lock:
            lock.append("f", b'{"status"} of the night')
        self.table.script["/v1/status"] = [busy("SECONDARY_MODE"), (200, {"status": "OK", "role": "replica"})]
        self.assertEqual(self.client.get("/v1/status", local=True)["role"], "replica")
        self.assertEqual(self.table.of("/v1/status")[0]["local"], "true")
        self.assertEqual(self.client.read("f"), b'{"status"} of the night')
        self.table.script["/v1/locks/a%20b"] = [(200, {"status": "OK", "holder": {"client_id": "@9"}})]
        self.assertEqual(self.client.holder("a b").client_id, "@9")
        self.table.script["/v1/locks/a"] = [(200, {"status": "OK"})]
        self.assertIsNone(self.client.holder("a"))
        self.table.script["/v1/locks/a"] = [(403, {"status": "PERMISSION_DENIED"})]
        with self.assertRaises(Refused):
            self.client.info("a")
