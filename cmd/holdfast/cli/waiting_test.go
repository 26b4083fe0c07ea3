// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestWaitingText(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	holder := &wire.Holder{Client: "@9", User: "alice", Host: "h1", PID: 7, Command: "make"}
	queue := []wire.WaiterBody{{Host: "h1", PID: 8}, {Host: "h2", PID: 9}, {Host: "h1", PID: 9}}
	same := []wire.WaiterBody{{ClientID: "~a", RequestID: 1, Host: "h1", PID: 9}, {ClientID: "~b", RequestID: 1, Host: "h1", PID: 9}, {ClientID: "~b", RequestID: 2, Host: "h1", PID: 9}}
	for _, x := range []struct {
		l    wire.LockBody
		me   identity
		want string
	}{
		{wire.LockBody{}, identity{}, "waiting for lock job: it is free, and goes to the first in the queue, 0 in the queue"},
		{wire.LockBody{Holder: holder, Since: wire.Moment(since.UnixMilli()), Waiters: queue, QueueLength: 3}, identity{},
			"waiting for lock job: held by alice on h1, make (pid 7), for 1m0s, 2 before you in the queue"},
		{wire.LockBody{Holder: holder, Holders: 3, QueueLength: 5}, identity{},
			"waiting for lock job: shared by 3, the first being alice on h1, make (pid 7), for an unknown time, 5 in the queue"},
		{wire.LockBody{Waiters: same, QueueLength: 3}, identity{"~b", 1}, "waiting for lock job: it is free, and goes to the first in the queue, 1 before you in the queue"},
		{wire.LockBody{Waiters: same, QueueLength: 3}, identity{"~b", 2}, "waiting for lock job: it is free, and goes to the first in the queue, 2 before you in the queue"},
		{wire.LockBody{Holder: holder, RequestID: 3, QueueLength: 1}, identity{"@9", 3}, "waiting for lock job: it is granted to this command, and the answer is not here yet: see holdfast status"},
		{wire.LockBody{Holder: holder, RequestID: 2}, identity{"@9", 3}, "waiting for lock job: held by alice on h1, make (pid 7), for an unknown time, 0 in the queue"},
		{wire.LockBody{Holder: &wire.Holder{Client: "@7", Host: "h1", PID: 9}}, identity{}, "waiting for lock job: held by h1, pid 9, for an unknown time, 0 in the queue"},
	} {
		x.l.Lock = "job"
		if got := waitingText(&x.l, waiting{x.me, "h1", 9}, since.Add(time.Minute)); got != x.want {
			t.Errorf("got %q, want %q", got, x.want)
		}
	}
	odd := wire.LockBody{Lock: "job", Waiters: []wire.WaiterBody{{Host: "h2", PID: 9}, {Host: "a_b", PID: 9}}, QueueLength: 2}
	if got := waitingText(&odd, waiting{host: "a@b", pid: 9}, since); !strings.HasSuffix(got, "1 before you in the queue") {
		t.Errorf("on a host with an @: %q", got)
	}
}

// A line of a terminal is never longer than the terminal: what wraps could not be removed.
func TestReportLine(t *testing.T) {
	for width, want := range map[int]string{0: "holdfast: some text\n", 80: "\r\x1b[Kholdfast: some text", 15: "\r\x1b[Kholdfast: some"} {
		var b bytes.Buffer
		if reportLine(&b, width, "some text"); b.String() != want {
			t.Errorf("width %d: got %q, want %q", width, b.String(), want)
		}
	}
	var b bytes.Buffer
	if reportLine(&b, 0, "two\nlines\x1b[1m"); strings.Count(b.String(), "\n") != 1 || strings.Contains(b.String(), "\x1b") {
		t.Errorf("got %q", b.String())
	}
}
