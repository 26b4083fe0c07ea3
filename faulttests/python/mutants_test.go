// SPDX-License-Identifier: Apache-2.0

package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is the package with one rule broken: one text of a file replaced by another.
type mutant struct {
	name, rule     string
	file, old, new string
	by, dies       string // the test that has to fail, and part of what it says then
}

// mutants break what the Python package promises, one at a time.
var mutants = []mutant{
	{
		"lease-without-margin", "a lease counts less a margin, for clocks that run at different speeds",
		"_clock.py", `return ttl / 100 + 0.010`, `return 0.0`,
		"test_pure.LeaseTest", "110",
	},
	{
		"lease-on-the-time-of-day", "a lease counts on a clock that nobody sets",
		"_clock.py", `return lambda: time.clock_gettime(clock)`, `return time.time`,
		"test_pure.LeaseTest", "it is the time of day",
	},
	{
		"older-answer-shortens", "the answer to an older question never shortens a lease",
		"_clock.py", `self.deadline = max(self.deadline, sent + left - margin(left))`, `self.deadline = sent + left - margin(left)`,
		"test_pure.LeaseTest", "99.89",
	},
	{
		"lease-from-the-answer", "a lease counts from when the question was sent",
		"_client.py", `answer = Answer(reply.body(), sent)`, `answer = Answer(reply.body(), _clock.now())`,
		"test_lock.LossTest.test_renewals_count_from_when_they_were_sent", "not less than 8.0",
	},
	{
		"held-until-told", "a lock whose lease may have ended is not held, whatever the threads do",
		"_keeper.py", `if self._ended is None and not self._lease.over(_clock.now()):`, `if self._ended is None:`,
		"test_lock.LossTest.test_lease_ends_on_this_clock", "True is not false",
	},
	{
		"repeat-has-a-whole-lease", "a grant that is told again has only what is left of its lease",
		"_lock.py", `parse_duration(a.body.get("ttl")))  # of a repeat`, `parse_duration(a.body.get("ttl")) or self.ttl)  # of a repeat`,
		"test_lock.LossTest.test_repeated_grant_has_what_is_left", "not less than or equal to 0.0",
	},
	{
		"what-ended-is-renewed", "a renewal that does not list a grant ends it",
		"_keeper.py", `g.lose("the service has ended it: it was broken, or no renewal reached the service in time")`, `g.extend(a.sent, g.lease()[0])`,
		"test_lock.LossTest.test_what_the_service_has_ended", "it did not happen",
	},
	{
		"loss-is-not-told", "the end of a with block tells that the lock was lost",
		"_lock.py", "            if error is None:\n                raise\n", "            if error is None:\n                return\n",
		"test_lock.LossTest.test_end_of_the_block_says_so", "LockLost not raised",
	},
	{
		"block-with-a-lost-lock", "a with block does not begin with a lock that was lost after acquire",
		"_lock.py", "        if self._pending:\n            self.check()\n", "        if self._pending:\n            pass\n",
		"test_lock.LossTest.test_a_block_begins_only_with_what_is_held", "it began",
	},
	{
		"strays-are-kept", "a grant without a holder in the process is given back",
		"_keeper.py", `and t not in self._leaving and not`, `and t in self._leaving and not`,
		"test_lock.KeepAliveTest.test_stray_grant_is_released", "it did not happen",
	},
	{
		"child-holds-its-parents-locks", "a process that was forked holds nothing of its parent",
		"_keeper.py", `            g.disown(reason)`, `            pass`,
		"test_lock.ForkTest", "!= 0",
	},
	{
		"nonce-is-copied", "two processes never open the same client",
		"_client.py", `self.nonce = secrets.randbits(62) + 1`, `self.nonce = random.Random(1).getrandbits(62) + 1`,
		"test_pure.NumbersTest", "1 != 100",
	},
	{
		"receipts-are-given-up", "the low-water mark stays below every open request",
		"_client.py", `return number, min(self._open)`, `return number, number`,
		"test_pure.NumbersTest", "Lists differ",
	},
	{
		"doubt-is-forgotten", "an append whose answer was lost is unknown, not refused",
		"_client.py", `answer._replace(doubt=call.progress.doubt and not _decided(answer, named))`, `answer`,
		"test_requests.AppendTest.test_refusal_after_a_lost_answer_leaves_it_unknown", "INVALID_ARGUMENT",
	},
	{
		"lost-is-not-executed", "an attempt without an answer may have been executed",
		"_client.py", `doubted, self.progress.doubt = self.progress.doubt, True`, `doubted, self.progress.doubt = self.progress.doubt, False`,
		"test_requests.AppendTest.test_outcome_that_stays_unknown_is_settled_later", "Unavailable",
	},
	{
		"committed-is-repeated", "an append that is in the log is not sent again",
		"_client.py", `if answer.status == "UNKNOWN" and not answer.flag("committed"):`, `if answer.status == "UNKNOWN":`,
		"test_requests.AppendTest.test_committed_is_final", "True",
	},
	{
		"unwanted-grant-stays", "a request for a lock whose fate is unknown is cancelled",
		"_client.py", "        if a.doubt:\n            self.cancel_later(", "        if False:\n            self.cancel_later(",
		"test_requests.AcquireTest.test_refusal_after_a_lost_attempt_is_cancelled", "it did not happen",
	},
	{
		"waits-share-numbers", "a wait has an identity of its own",
		"_client.py", "            if waits:\n                who = self._free", "            if False:\n                who = self._free",
		"test_requests.AcquireTest.test_waits_have_identities_of_their_own", "==",
	},
	{
		"key-in-plain-text", "a credential is sent over TLS, or to this host, only",
		"_transport.py", `if bearer and not made.private:`, `if False:`,
		"test_requests.CredentialTest.test_is_shown_to_this_host_only", "ConfigError not raised",
	},
	{
		"any-authority-is-believed", "of a join string, only the authority with its pin is believed",
		"_endpoints.py", `if pin_of(der) == self._pin:`, `if True:`,
		"test_servers.SecureTest.test_who_is_not_a_server_of_the_cluster_gets_nothing", "not raised",
	},
	{
		"retries-in-step", "pauses are random, so that clients do not come back together",
		"_client.py", `pause = self._random() * min(`, `pause = min(`,
		"test_pure.PausesTest", "0.01 != 0",
	},
	{
		"released-is-done", "done says so where the lock was released before, and nothing is marked",
		"_lock.py", `            if ended is not None and not grant.marking:`, `            if False:`,
		"test_marks.OnceTest.test_released_is_not_done", "LockLost",
	},
	{
		"lost-is-done", "what was done under a lock that was lost is not marked",
		"_lock.py", `                self._give_back(grant, ended, self.client.budget)  # which`, `                self._give_back(grant, ended, self.client.budget, True)  # which`,
		"test_marks.OnceTest.test_lost_is_not_done", "day-1",
	},
	{
		"done-in-doubt-is-lost", "a done that is called again makes certain what became of the first one",
		"_lock.py", `grant.marked = self.client.settle(grant.unsure) is not None`, `grant.marked = False`,
		"test_marks.OnceTest.test_again_makes_the_first_one_certain", "LockLost",
	},
	{
		"child-does-its-parents-work", "a process that was forked does not say that its parent's work is done",
		"_lock.py", "        if grant.foreign:\n            raise LockLost(", "        if False:\n            raise LockLost(",
		"test_marks.OnceTest.test_child_has_done_nothing", "!= 0",
	},
	{
		"unmarked-grant-is-taken", "a grant of a server that ignored what was asked of it is given back",
		"_lock.py", `if marks and not a.flag("marked"):`, `if False:`,
		"test_marks.RememberTest.test_grant_without_its_condition_is_given_back", "InvalidArgument not raised",
	},
	{
		"unlimited-grant-is-taken", "a grant of a server that ignored the limit is given back",
		"_lock.py", `if lock.limit is not None and (a.number`, `if False and (a.number`,
		"test_marks.LimitTest.test_grant_without_its_limit_is_given_back", "InvalidArgument not raised",
	},
	{
		"half-a-reset", "a reset that broke off begins anew",
		"_watch.py", `if not reset.get("part"):`, `if False:`,
		"test_others.WatchTest.test_reset_that_breaks_off_begins_anew", "Lists differ",
	},
	{
		"cancelled-task-waits-on", "a task that is cancelled leaves the queue",
		"aio.py", `            abort.set()`, `            pass`,
		"test_others.AsyncTest.test_cancelled_wait_leaves_nothing", "it did not happen",
	},
	{
		"close-joins-what-has-not-begun", "close waits for what goes on in the background, however lately it began",
		"_client.py", `                thread.start()
                self._settling.add(thread)  # close joins it, which has to be started by then
`, `                self._settling.add(thread)
                self._mutex.release()
                thread.start()
                self._mutex.acquire()
`,
		"test_lock.ThreadTest.test_close_joins_what_has_only_begun", "cannot join thread before it is started",
	},
	{
		"outcome-of-any-cell", "the outcome of a request is asked of the cell that opened its client",
		"_client.py", `a = self._opener(error.client_id).ask("cancel"`, `a = self.ask("cancel"`,
		"test_cells.CellsTest.test_unknown_is_settled_where_it_was_asked", "Lists differ",
	},
	{
		"refusal-of-a-cell-leaves-doubt", "a cell that refuses a name has executed no attempt of the request",
		"_client.py", `"LEASE_EXPIRED", "WRONG_CELL")`, `"LEASE_EXPIRED")`,
		"test_cells.CellsTest.test_refusal_leaves_no_doubt", "UnknownOutcome",
	},
	{
		"cell-is-whoever-answers", "nobody is taken for a cell but servers of its cluster",
		"_client.py", `        made._cluster = str(cells[number]["cluster_id"])  # servers of another one refuse everything
`, ``,
		"test_cells.CellsTest.test_cell_that_is_not_known", "WrongCluster not raised",
	},
	{
		"cells-behind-a-gateway-unknown", "a client of a gateway computes the ports of other cells",
		"_client.py", `        if number in cells and gateway:`, `        if number in cells and not gateway:`,
		"test_cells.CellsTest.test_through_a_gateway", "is not known to the servers",
	},
	{
		"cell-asked-in-plain-text", "servers that are told over TLS are asked over TLS",
		"_endpoints.py", `        if not self._plain():
`, `        if self._plain() is None:
`,
		"test_cells.CellsTest.test_trust", "ConfigError not raised",
	},
	{
		"cell-of-the-lock-forgotten", "a lock is used at the cell that granted it",
		"_lock.py", `            self._cell = at
`, ``,
		"test_cells.CellsTest.test_locks_of_both_cells", "WRONG_CELL",
	},
	{
		"lost-cell-loses-the-site", "who wants another cell does not need that of the endpoints",
		"_client.py", `            if site is None or site.route(name) == site.own:`, `            if site is None or True:`,
		"test_cells.CellsTest.test_home_cell_down", "Unavailable",
	},
	{
		"cell-of-the-endpoints-is-the-client", "the client of one cell can be closed without the others",
		"_client.py", `        there = self._made(number)
        if there is not None:`, `        there = self if self._site is not None and number == self._site.own else self._made(number)
        if there is not None:`,
		"test_cells.CellsTest.test_each_cell_has_a_client_of_its_own", "unexpectedly identical",
	},
	{
		"break-stays-with-the-home-cell", "what a cell cannot have executed is done by the cell that has the name",
		"_client.py", `        except (Unavailable, UnknownOutcome) as e:
            self._look()`, `        except Unavailable as e:
            self._look()`,
		"test_cells.CellsTest.test_break_while_the_home_cell_hangs", "UnknownOutcome",
	},
	{
		"own-cell-where-it-is-told", "endpoints that lead to a cell are used for it, wherever it says that it is",
		"_client.py", `        if self._site is not None and number == self._site.own:  # these`, `        if self._site is None:  # these`,
		"test_cells.CellsTest.test_each_cell_has_a_client_of_its_own", "127.0.0.1:1",
	},
	{
		"wait-is-over-unsaid", "a wait that is over by the time that the right cell is asked has timed out",
		"_lock.py", ` or a.status == "HELD" and self._wait:`, `:`,
		"test_cells.CellsTest.test_wait_of_which_nothing_is_left", "NotAcquired",
	},
	{
		"site-looked-for-again", "a volume that is of no site is asked once whether it is",
		"_client.py", `        self._alone = self._alone or status`, `        self._alone = self._alone and status`,
		"test_cells.CellsTest.test_unavailable_is_told_in_time", "False is not true",
	},
	{
		"home-cell-asked-first", "which cell has a name is asked once",
		"_client.py", `        if self._site is not None:
            return ask(self._at(self._site.route(name)))
`, ``,
		"test_cells.CellsTest.test_locks_of_both_cells", "4 != 3",
	},
	{
		"names-routed-whole", "the text in braces decides which cell has a name",
		"_site.py", `return tag if closed and tag else name`, `return name`,
		"test_cells.CellsTest.test_route", "x{t}y",
	},
	{
		"closed-cell-stays", "the client of a cell that was closed is made anew",
		"_client.py", `            if made is not None and (there is None or there._closed):
                there = self._cells[number] = made
            return None if there is None or there._closed else there
`, `            if made is not None and there is None:
                there = self._cells[number] = made
            return there
`,
		"test_cells.CellsTest.test_cell_that_was_closed", "the client is closed",
	},
	{
		"server-names-a-socket", "a server tells of hosts and ports, never of paths",
		"_endpoints.py", `        if any(parse_address(a).path for a in addresses):`, `        if False:`,
		"test_cells.CellsTest.test_servers_tell_of_no_paths", "ConfigError not raised",
	},
	{
		"filelock-releases-too-early", "a FileLock is held until it was released as often as acquired",
		"_filelock.py", `self._mine.count -= 1`, `self._mine.count = 0`,
		"test_others.FileLockTest.test_is_reentrant_in_one_thread", "1 != 2",
	},
}

// patched returns a copy of the package with the mutant in it.
func (m *mutant) patched(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(here(t))); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "src", "holdfast", m.file)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), m.old); n != 1 {
		t.Fatalf("the patch does not fit: %s has %d times %q", m.file, n, m.old)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(b), m.old, m.new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestMutants wants each mutant to be noticed by the test that it names, which passes without it (TestPackage).
func TestMutants(t *testing.T) {
	names := map[string]bool{}
	var env []string
	if *faults {
		env = servers(t)
	}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are named %s", m.name)
		}
		names[m.name] = true
		t.Run(m.name, func(t *testing.T) {
			dir := m.patched(t)
			if !*faults {
				return // it fits
			}
			out, err := unittest(t, dir, env, m.by)
			switch {
			case err == nil:
				t.Errorf("nobody noticed that a rule is broken: %s", m.rule)
			case !strings.Contains(out, m.dies) || strings.Contains(out, "SyntaxError") || strings.Contains(out, "NameError"):
				t.Errorf("it died of something else than %q:\n%s", m.dies, out)
			}
		})
	}
}
