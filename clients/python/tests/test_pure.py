# SPDX-License-Identifier: Apache-2.0
"""What needs no server: leases, endpoints, configuration, durations, pauses."""

import os
import pathlib
import pickle
import tempfile
import time
import unittest

from holdfast import ConfigError, Holder
from holdfast import _client, _clock, _config, _endpoints, _errors, _transport
from holdfast._filelock import lock_name

PIN = "A" * 42 + "E"


class LeaseTest(unittest.TestCase):
    def test_counts_from_sent_less_margin(self):
        lease = _clock.Lease(10, sent=100, left=10)
        self.assertAlmostEqual(lease.deadline, 110 - 0.11)
        self.assertFalse(lease.over(109.88))
        self.assertTrue(lease.over(109.9))
        self.assertTrue(lease.in_jeopardy(105))
        self.assertFalse(lease.in_jeopardy(104.9))
        self.assertAlmostEqual(lease.left(105), 4.89)
        self.assertEqual(lease.left(200), 0)

    def test_older_answer_never_shortens(self):
        lease = _clock.Lease(10, sent=100, left=10)
        lease.extend(sent=90, left=10)
        self.assertAlmostEqual(lease.deadline, 110 - 0.11)
        lease.extend(sent=103, left=10)
        self.assertAlmostEqual(lease.deadline, 113 - 0.11)

    def test_clock_goes_on(self):
        a, b = _clock.now(), _clock.now()
        self.assertLessEqual(a, b)
        self.assertGreater(abs(time.time() - b), 1e6, "it is the time of day")


class DurationTest(unittest.TestCase):
    def test_parse(self):
        for text, seconds in [("30s", 30), ("1m30s", 90), ("1h0m0.5s", 3600.5), ("250ms", 0.25), ("12.5µs", 12.5e-6), ("", 0), (None, 0), ("soon", 0), ("-3s", 0)]:
            self.assertAlmostEqual(_transport.parse_duration(text), seconds, msg=text)

    def test_format(self):
        self.assertEqual(_transport.duration(1.5), "1500ms")


class EndpointTest(unittest.TestCase):
    def test_addresses(self):
        for text, want in [
            ("h1:7601", ("h1", 7601, "")),
            ("[::1]:7601", ("::1", 7601, "")),
            ("unix:///run/h.sock", ("localhost", 0, "/run/h.sock")),
            ("unix:h.sock", ("localhost", 0, "h.sock")),
        ]:
            self.assertEqual(tuple(_endpoints.parse_address(text)), want)
        for text in ["h1", "h1:", "h1:0", "h1:65536", ":7601", "http://h1:7601", "h1:7601/x", "::1:7601", "h 1:7"]:
            with self.assertRaises(ConfigError, msg=text):
                _endpoints.parse_address(text)

    def test_resolve(self):
        for text, kind, count in [
            ("h1:7601, h2:7601", _endpoints.PlainTrust, 2),
            (["h1:7601", "h2:7601"], _endpoints.PlainTrust, 2),
            ("https://h1:7601,h2:7601", _endpoints.OutsideTrust, 2),
            (f"holdfast://h1:7601,h2:7601/?pin={PIN}", _endpoints.PinTrust, 2),
        ]:
            addresses, trust, _ = _endpoints.resolve(text)
            self.assertIs(type(trust), kind)
            self.assertEqual([a.host for a in addresses], ["h1", "h2"][:count])
        self.assertIs(type(_endpoints.resolve("h1:7601", ca="ca.crt")[1]), _endpoints.AuthorityTrust)

    def test_wrong_endpoints(self):
        for text in [
            "", [], "holdfast://h1:7601", "holdfast://h1:7601/?pin=short", f"holdfast://h1:7601/?pin={PIN[:-1]}F", f"holdfast:///?pin={PIN}",
            f"holdfast://h1:7601/?pin={PIN}&x", ["/volume", "h1:7601"], ["https://h1:7601", "h2:7601"], "/not/there", "https://" + "h:1," * 65,
        ]:  # fmt: skip
            with self.assertRaises(ConfigError, msg=text):
                _endpoints.resolve(text)
        with self.assertRaises(ConfigError):
            _endpoints.resolve(f"holdfast://h1:7601/?pin={PIN}", ca="ca.crt")

    def test_volume(self):
        with tempfile.TemporaryDirectory() as volume:
            cluster = pathlib.Path(volume, "CLUSTER")
            cluster.write_text('{"cluster_id":"%s","servers":[{"id":1,"client":"h1:7601","http":"h1:7611"},{"id":2,"client":"h2:7601"}]}' % ("ab" * 16))
            addresses, trust, _ = _endpoints.resolve(volume)
            self.assertEqual([str(a) for a in addresses], ["h1:7611", "h2:7601"])
            self.assertIs(type(trust), _endpoints.AuthorityTrust)
            for text in ["", "{}", "[]", '{"cluster_id":"x","servers":[]}', '{"cluster_id":"%s","servers":["h"]}' % ("ab" * 16)]:
                cluster.write_text(text)
                with self.assertRaises(ConfigError, msg=text):
                    _endpoints.resolve(volume)

    def test_public_key_of_anything(self):
        # The SubjectPublicKeyInfo is the seventh element behind the version, or the sixth without one.
        def element(tag, *parts):
            content = b"".join(parts)
            return bytes([tag, 0x81, len(content)]) + content if len(content) > 127 else bytes([tag, len(content)]) + content

        key = element(0x30, b"k" * 90)
        fields = [element(0x02, b"1"), element(0x30), element(0x30, b"issuer" * 10), element(0x30), element(0x30), key]
        for version in ([], [element(0xA0, b"\x02\x01\x02")]):
            der = element(0x30, element(0x30, *version, *fields, b"the rest"))
            self.assertEqual(_endpoints._public_key(der), key)
            for cut in range(len(der)):
                self.assertIn(_endpoints._public_key(der[:cut]), (b"", key))


class ConfigTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.env = {"XDG_CONFIG_HOME": self.dir.name}
        os.mkdir(os.path.join(self.dir.name, "holdfast"))

    def file(self, name, text, mode=0o600):
        path = os.path.join(self.dir.name, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def test_toml(self):
        good = "# clients\n\nendpoints = \"h1:7601\" # all\nca='/x/ca.crt'\nkey-file  =  \"\"\n"
        self.assertEqual(_config.parse_toml(good, "f"), {"endpoints": "h1:7601", "ca": "/x/ca.crt", "key-file": ""})
        for text in ["endpoint = 'x'", "ca = x", "[clients]", "ca = \"x\" y", "ca"]:
            with self.assertRaises(ConfigError, msg=text):
                _config.parse_toml(text, "f")

    def test_environment_wins_over_files(self):
        self.file("holdfast/config.toml", 'endpoints = "of-file:1"\n')
        self.assertEqual(_config.setting(self.env, "HOLDFAST_ENDPOINTS", "endpoints"), "of-file:1")
        self.env["HOLDFAST_ENDPOINTS"] = "of-env:1"
        self.assertEqual(_config.setting(self.env, "HOLDFAST_ENDPOINTS", "endpoints"), "of-env:1")
        with self.assertRaises(ConfigError):
            _config.setting({"HOLDFAST_CLIENT_CONFIG": "/not/there"}, "X", "ca")

    def test_credentials_in_order(self):
        find = _config.credential_from_environment(self.env)
        cluster = "ab" * 16
        self.assertEqual(find(cluster), "")
        self.file(f"holdfast/{cluster}.ticket", "hft_ticket\n")
        self.assertEqual(find(cluster), "hft_ticket")
        self.assertEqual(find(""), "", "a ticket is one cluster's")
        self.assertEqual(find("cd" * 16), "")
        self.env["HOLDFAST_CERT"] = "x"
        self.assertEqual(find(cluster), "", "a certificate is shown instead")
        self.file("holdfast/config.toml", 'key-file = "%s"\n' % self.file("of-config", "hfk_config"))
        self.assertEqual(find(""), "hfk_config")
        self.env["CREDENTIALS_DIRECTORY"] = self.dir.name
        self.assertEqual(find(""), "hfk_config")
        self.file("holdfast.key", "hfk_systemd")
        self.assertEqual(find(""), "hfk_systemd")
        self.env["HOLDFAST_KEY_FILE"] = self.file("key", " hfk_file\n")
        self.assertEqual(find(""), "hfk_file")
        self.env["HOLDFAST_KEY"] = "hfk_env"
        self.assertEqual(find(""), "hfk_env")

    def test_wrong_credentials_are_not_told(self):
        self.file(f"holdfast/{'ab' * 16}.ticket", "hft_ticket", 0o644)
        with self.assertRaisesRegex(ConfigError, "others may read it"):
            _config.credential_from_environment(self.env)("ab" * 16)
        for text in ["secret", "hfk_a secret", "hfk_\x07secret", "hfk_" + "secret" * 4000]:
            with self.assertRaises(ConfigError) as e:
                _config.credential_from_environment({"HOLDFAST_KEY": text})("")
            self.assertNotIn("secret", str(e.exception))


class ErrorTest(unittest.TestCase):
    def test_refusals(self):
        for status, kind in _errors._BY_STATUS.items():
            e = _errors.refusal("append", {"status": status, "message": "because", "lock": "jobs/a"})
            self.assertIs(type(e), kind)
            self.assertEqual(str(e), f"append 'jobs/a': {status}: because")
        self.assertIs(type(_errors.refusal("x", {})), _errors.Refused)

    def test_errors_go_to_other_processes(self):
        for e in (
            _errors.NotAcquired("held", "a", Holder(client_id="@7"), 3),
            _errors.Timeout("held", "a"),
            _errors.LockLost("a", 7, "why"),
            _errors.UnknownOutcome("lost", "@7", 3, lambda: None),
            _errors.refusal("append", {"status": "OFFSET_MISMATCH", "offset": 5}),
            ConfigError("wrong"),
        ):
            copy = pickle.loads(pickle.dumps(e))
            self.assertEqual((type(copy), str(copy)), (type(e), str(e)))
            self.assertEqual({k: v for k, v in copy.__dict__.items() if k != "_settled"}, {k: v for k, v in e.__dict__.items() if k != "_settled"})
        pickle.loads(pickle.dumps(_errors.UnknownOutcome("lost", "@7", 3, lambda: None))).settled()

    def test_holder_of_a_lean_answer(self):
        self.assertIsNone(Holder.of(None))
        self.assertIsNone(Holder.of({}))
        self.assertEqual(Holder.of({"client_id": "@7", "new": 1}), Holder(client_id="@7"))
        self.assertEqual(str(Holder.of({"client_id": "@7", "user": "alice", "host": "web3", "command": "backup", "pid": 7})), "alice on web3, backup (pid 7)")


class PausesTest(unittest.TestCase):
    def test_grow_to_a_cap_with_full_jitter(self):
        p = _client.Pauses(lambda: 1.0)
        self.assertEqual([round(p.next(0) * 1000) for _ in range(5)], [10, 20, 40, 60, 60])
        for _ in range(200):
            last = p.next(0)
        self.assertEqual(last, 0.250)
        self.assertEqual(_client.Pauses(lambda: 0.0).next(0), 0)

    def test_server_says_when(self):
        p = _client.Pauses(lambda: 0.5)
        self.assertAlmostEqual(p.next(0.5), 0.506)
        self.assertLess(p.next(3600), 5.1)


class NumbersTest(unittest.TestCase):
    def test_low_water(self):
        who = _client.Identity(main=True)
        self.assertEqual([who.take() for _ in range(3)], [(1, 1), (2, 1), (3, 1)])
        who.done(2)
        self.assertEqual(who.low(), 1)
        who.done(1)
        self.assertEqual(who.take(), (4, 3))

    def test_nonces_differ(self):
        self.assertEqual(len({_client.Identity(main=True).nonce for _ in range(100)}), 100)


class PathTest(unittest.TestCase):
    def test_names(self):
        self.assertEqual(lock_name("/var/lock/report.lock"), "var/lock/report.lock")
        self.assertEqual(lock_name(pathlib.Path("/a/../b//c.lock")), "b/c.lock")
        self.assertEqual(lock_name("x.lock"), os.path.join(os.getcwd(), "x.lock")[1:])
