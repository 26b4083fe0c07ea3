# SPDX-License-Identifier: Apache-2.0
"""A site of two cells, and a client that knows a server of one."""

import json
import os
import tempfile
from unittest import mock

from fake import DROP, LOSE, Case, Server, Table
from holdfast import Client, ConfigError, Lock, Refused, Timeout, Unavailable, UnknownOutcome, WrongCluster
from holdfast._endpoints import Address, OutsideTrust, PinTrust, PlainTrust, resolve, through
from holdfast._site import told

OTHER = "fedcba9876543210fedcba9876543210"
DIVISION = {"ranges": [{"from": "0" * 16, "cell": 0}], "pins": [{"prefix": "p0/", "cell": 0}, {"prefix": "p1/", "cell": 1}]}
# What cluster.Divide(2, nil) of the servers gives to which cell.
PLACES = {"p": 0, "a": 1, "b": 0, "jobs/nightly": 1, "ünï/ç": 1, "x{t}y": 1, "{}x": 1, "a{b": 1}


class CellsTest(Case):
    def setUp(self):
        super().setUp()
        self.other = Table()
        self.other.cluster = OTHER
        server = Server(self.other)
        self.addCleanup(server.close)
        self.table.foreign, self.other.foreign = {"p1/": 1}, {"p0/": 0}
        self.told = [
            {"cell": 0, "clients": self.endpoints, "cluster_id": self.table.cluster},
            {"cell": 1, "clients": [server.endpoint], "cluster_id": OTHER},
        ]
        for number, t in enumerate((self.table, self.other)):
            t.status = {"status": "OK", "cells": self.told, "cell": {"cell": number, **DIVISION}}

    def test_locks_of_both_cells(self):
        for name, table in (("p0/a", self.table), ("p1/a", self.other)):
            lock = Lock(name, client=self.client)
            for _ in range(2):
                with lock:
                    self.assertTrue(lock.verify())
                    lock.append(name + ".log", b"x")
            self.assertEqual(table.files, {name + ".log": b"xx"})
        self.assertEqual(len(self.table.of("acquire")), 2 + 1)  # the second time it knows
        self.assertEqual(len(self.client.get("/v1/status")["cells"]), 2)

    def test_through_a_gateway(self):
        first = 100_000  # the ports of cells are as far from each other as their numbers
        other = first + int(self.told[1]["clients"][0].rpartition(":")[2]) - int(self.endpoints[0].rpartition(":")[2])
        told = [{"cell": first, "cluster_id": self.table.cluster}, {"cell": other, "cluster_id": OTHER}]
        self.table.foreign = {"p1/": other}
        self.table.status = {"status": "OK", "gateway": True, "cells": told}
        with Lock("p1/a", client=self.client) as lock:
            lock.append("p1/log", b"x")
        self.assertEqual(self.other.files, {"p1/log": b"x"})
        self.assertEqual(through([Address("h", 7601), Address("localhost", 0, "/socket"), Address("::1", 65535)], 1), ["h:7602"])

    def test_reads(self):
        self.other.files["p1/log"] = b"there"
        self.assertEqual(self.client.read("p1/log"), b"there")
        self.assertEqual(self.client.info("p1/a"), {"status": "OK"})
        self.assertFalse(self.client_of_other().verify("p1/a", 7))
        self.assertFalse(self.client.verify("p1/a", 7))
        self.other.script["/v1/watch"] = [b'id: 1\ndata: {"kind":"grant","lsn":1,"lock":"p1/a"}\n\n']
        self.assertEqual(next(self.client.watch(lock="p1/a", after=0)).lock, "p1/a")

    def client_of_other(self):
        self.assertIs(self.client.cell(1), self.client.cell(1))
        return self.client.cell(1)

    def test_refusal_leaves_no_doubt(self):
        with Lock("p0/a", client=self.client) as lock:
            self.table.foreign = {"p0/": 1}
            self.table.script["append"] = [DROP]
            with self.assertRaises(Refused) as caught:
                lock.append("p0/log", b"x")
            self.table.foreign = {}
        self.assertEqual(caught.exception.status, "WRONG_CELL")

    def test_unknown_is_settled_where_it_was_asked(self):
        lock = Lock("p1/a", client=self.new_client(budget=0.3, attempt=0.1))
        lock.acquire()
        self.other.script["append"] = [LOSE] * 20
        with self.assertRaises(UnknownOutcome) as caught:
            lock.append("p1/log", b"x")
        e = caught.exception
        e.client_id += "-" + OTHER[:8]  # as real ones have it
        self.client.settle(e)
        self.assertEqual([f["client_id"] for f in self.other.of("cancel")], [e.client_id])
        self.assertEqual(self.table.of("cancel"), [])

    def test_settle_needs_the_cell_of_the_request_only(self):
        lock = Lock("p1/a", client=self.new_client(budget=0.3, attempt=0.1))
        lock.acquire()
        self.other.script["append"] = [LOSE] * 20
        with self.assertRaises(UnknownOutcome) as caught:
            lock.append("p1/log", b"x")
        e, client = caught.exception, lock._given
        e.client_id += "-" + OTHER[:8]  # as real ones have it
        # The server has been started again, and has not read the volume of the other cell yet.
        self.table.status = {"status": "OK", "cells": [self.told[0], {"cell": 1, "clients": []}]}
        client.settle(e)
        self.assertEqual(len(self.other.of("cancel")), 1)
        self.assertEqual(self.table.of("cancel"), [])

    def test_settle_at_no_cell_that_is_not_the_requests(self):
        settled = []
        e = UnknownOutcome("lost", "@7-" + OTHER[:8], 1, lambda: settled.append(1))
        self.told[1] = {"cell": 1, "clients": []}
        with self.assertRaises(Unavailable):
            self.client.settle(e)
        self.assertEqual((self.table.of("cancel"), settled), ([], []))

    def test_settle_of_the_own_cell_asks_nothing_more(self):
        e = UnknownOutcome("lost", "@7-" + self.table.cluster[:8], 1, lambda: None)
        with Lock("p0/a", client=self.client):
            self.client.get = self.fail  # type: ignore[method-assign]
            self.client.settle(e)
        self.assertEqual(len(self.table.of("cancel")), 1)

    def test_cell_that_is_not_known(self):
        self.told[1]["cluster_id"] = ""
        with self.assertRaisesRegex(Unavailable, "cell 1 of the site is not known"):
            Lock("p1/a", client=self.client).acquire()
        self.told[1]["cluster_id"] = "0" * 32  # another cluster has its address
        with self.assertRaises(WrongCluster):
            Lock("p1/a", client=self.new_client(budget=0.2)).acquire()
        self.assertEqual(self.other.executed, [])

    def test_close_closes_all(self):
        there = self.client.cell(1)
        self.client.close()
        with self.assertRaisesRegex(ConfigError, "closed"):
            Lock("p1/a", client=there).acquire()

    def test_directory(self):
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "SITE"), "w", encoding="utf-8") as f:
                json.dump({"site_id": "s", "cells": [{"cell": 0, "path": "cells/0"}, {"cell": 1, "path": "cells/1"}]}, f)
            with open(os.path.join(d, "SITE.init"), "w", encoding="utf-8") as f:
                json.dump({"site_id": "s", "division": DIVISION}, f)
            with self.assertRaisesRegex(ConfigError, "cells/0: no volume"):
                resolve(d)
            os.makedirs(os.path.join(d, "cells/1"))
            with open(os.path.join(d, "cells/1/CLUSTER"), "w", encoding="utf-8") as f:
                json.dump({"cluster_id": OTHER, "servers": [{"client": a} for a in self.told[1]["clients"]]}, f)
            client = Client(d, credential="")
            self.addCleanup(client.close, 0.2)
            with Lock("p0/a", client=client), Lock("p1/a", client=client):
                self.assertEqual((list(self.table.locks), list(self.other.locks)), (["p0/a"], ["p1/a"]))

    def test_home_cell_down(self):
        for knows in True, False:
            client = self.new_client(budget=1.0, attempt=0.3)
            if knows:
                with Lock("p1/a", client=client):
                    pass
            self.table.script["acquire"] = self.table.script["open"] = [DROP] * 1000
            with Lock("p1/b", client=client):
                self.assertIn("p1/b", self.other.locks)
            with self.assertRaises(Unavailable):
                Lock("p0/b", client=client).acquire()
            self.table.script.clear()

    def test_break_while_the_home_cell_hangs(self):
        client = self.new_client(budget=0.5, attempt=0.2)
        with Lock("p0/a", client=client):
            pass
        token = Lock("p1/x", client=self.new_client()).acquire().token
        self.table.script["break"] = [LOSE] * 1000
        self.assertEqual(client.break_lock("p1/x", token=token), token)
        with self.assertRaises(UnknownOutcome):
            client.break_lock("p0/x", token=7)

    def test_wait_of_which_nothing_is_left(self):
        with Lock("p1/b", client=self.new_client()):
            client = self.new_client(budget=0.4, attempt=0.2)
            self.table.script["acquire"] = self.table.script["open"] = [DROP] * 1000
            with self.assertRaises(Timeout):
                Lock("p1/b", client=client).acquire(0.2)

    def test_unavailable_is_told_in_time(self):
        plain = Table()
        server = Server(plain)
        self.addCleanup(server.close)
        client = Client([server.endpoint], credential="", budget=0.3, attempt=0.2)
        self.addCleanup(client.close, 0.1)
        plain.script["acquire"] = [DROP] * 1000
        for _ in range(2):
            with self.assertRaises(Unavailable):
                Lock("a", client=client).acquire()
        self.assertTrue(client._alone)

    def test_each_cell_has_a_client_of_its_own(self):
        self.told[0]["clients"] = ["127.0.0.1:1"]  # as it is told behind a tunnel: the endpoints lead to it all the same
        with Lock("p1/a", client=self.client):
            for number in 0, 1:
                with self.client.cell(number) as cell:
                    self.assertIsNot(cell, self.client)
                    self.assertEqual(cell.info(f"p{number}/b"), {"status": "OK"})
            self.assertEqual(self.client.info("p0/a"), {"status": "OK"})

    def test_cell_that_was_closed(self):
        there = self.client.cell(1)
        there.close()
        with Lock("p1/a", client=self.client):
            self.assertIsNot(self.client.cell(1), there)
        self.client.close()
        with self.assertRaisesRegex(ConfigError, "closed"):
            self.client.cell(1)

    def test_volume_that_hangs(self):
        with tempfile.TemporaryDirectory() as d:
            pipe = os.path.join(d, "CLUSTER")
            os.mkfifo(pipe)  # to which nobody writes
            with mock.patch("holdfast._endpoints._VOLUME_WAIT", 0.1), self.assertRaisesRegex(Unavailable, "does not answer"):
                resolve(d)
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # ends who reads there

    def test_route(self):
        ranges = [{"from": "0" * 16, "cell": 0}, {"from": "8" + "0" * 15, "cell": 1}]
        site = told({"ranges": ranges, "pins": [{"prefix": "p/", "cell": 2}, {"prefix": "p/q/", "cell": 3}]}, 0)
        for name, cell in [("p/x", 2), ("p/q/x", 3), *PLACES.items()]:
            self.assertEqual(site.route(name), cell, name)
        for wrong in [{}, {"ranges": []}, {"ranges": ranges[1:]}, {"ranges": ranges[::-1]}, {"ranges": [{"from": "x"}]}, None]:
            with self.assertRaises(ConfigError):
                told(wrong, 0)

    def test_trust(self):
        pin = "A" * 43
        joined = f"holdfast://h:1,h:2/?pin={pin}"
        self.assertEqual(PlainTrust().elsewhere(["h:1"], ""), ["h:1"])
        self.assertEqual(PlainTrust().elsewhere(["h:1", "h:2"], pin), joined)
        self.assertEqual(PinTrust(pin).elsewhere(["h:1", "h:2"], pin), joined)
        self.assertEqual(OutsideTrust().elsewhere(["h:1"], ""), ["https://h:1"])
        with self.assertRaisesRegex(ConfigError, "served in plain text"):
            PinTrust(pin).elsewhere(["h:1"], "")

    def test_servers_tell_of_no_paths(self):
        for address in "/mnt/volume", "./volume", "unix:/run/socket", "https://h:1", "h":
            for trust in PlainTrust(), PinTrust("A" * 43), OutsideTrust():
                with self.assertRaises(ConfigError):
                    trust.elsewhere(["h:1", address], "A" * 43)
