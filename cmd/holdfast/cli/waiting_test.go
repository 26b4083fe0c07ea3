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
	holder := &wire.Holder{Client: "@9", Host: "h1", PID: 7, Command: "make"}
	queue := []wire.WaiterBody{{Host: "h1", PID: 8}, {Host: "h2", PID: 9}, {Host: "h1", PID: 9}}
	for _, x := range []struct {
		l    wire.LockBody
		want string
	}{
		{wire.LockBody{}, "waiting for lock job: it is free, and goes to the first in the queue, 0 in the queue"},
		{wire.LockBody{Holder: holder, Since: wire.Moment(since.UnixMilli()), Waiters: queue, QueueLength: 3},
			"waiting for lock job: held by @9 make (pid 7 on h1) since 2026-01-02T03:04:05.000Z (1m0s ago), 2 before you in the queue"},
		{wire.LockBody{Holder: holder, Holders: 3, QueueLength: 5},
			"waiting for lock job: shared by 3, the first being @9 make (pid 7 on h1), since an unknown time, 5 in the queue"},
	} {
		x.l.Lock = "job"
		if got := waitingText(&x.l, "h1", 9, since.Add(time.Minute)); got != x.want {
			t.Errorf("got %q, want %q", got, x.want)
		}
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
