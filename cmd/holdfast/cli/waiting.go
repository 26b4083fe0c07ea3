// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// reportAfter is how long a command waits for a lock before it reports that.
	reportAfter = time.Second
	// reportGrowth is by how much the interval to the next report grows each time where the
	// standard error is not a terminal, and reportMost is the longest interval.
	reportGrowth = 10
	reportMost   = time.Hour
)

// reportWait reports on the standard error who has the lock for which this command waits, until
// stop is called. pid is the process that waits, as the servers were told. On a terminal there is
// one line that changes and is removed at the end; elsewhere there is a line after a second, and then
// ever more rarely.
func (a *app) reportWait(ctx context.Context, lock string, l *lease, pid int) (stop func()) {
	if wait, err := l.waitFor(); err != nil || wait == 0 || l.quiet || a.format != formatText {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := remote.New(remote.Options{Endpoints: a.servers(), Budget: reportAfter, Credential: a.credential()})
		if err != nil {
			return // the request that waits reports it
		}
		defer c.Close() //nolint:errcheck // nothing is in flight
		width := terminalWidth(a.Stderr)
		shown := false
		for pause := reportAfter; ; {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				if shown && width > 0 {
					fmt.Fprint(a.Stderr, "\r\x1b[K")
				}
				return
			}
			r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.GetLockResponse, error) {
				return s.GetLock(ctx, &pb.GetLockRequest{Lock: lock, MaxWaiters: historyPage})
			})
			if err == nil && ctx.Err() == nil {
				b := wire.LockBodyOf(r)
				shown = true
				reportLine(a.Stderr, width, waitingText(&b, hostname(), pid, time.Now()))
			}
			if width == 0 {
				pause = min(pause*reportGrowth, reportMost)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// reportLine writes a line, or on a terminal of that width puts it in the place of the one before.
func reportLine(w io.Writer, width int, text string) {
	text = "holdfast: " + oneLine(text)
	if width == 0 {
		fmt.Fprintln(w, text)
		return
	}
	if runes := []rune(text); len(runes) >= width {
		text = string(runes[:max(width-1, 0)]) // a line that wraps could not be removed
	}
	fmt.Fprintf(w, "\r\x1b[K%s", text)
}

// waitingText says for whom a process of this host waits, and how many wait before it.
func waitingText(l *wire.LockBody, host string, pid int, now time.Time) string {
	s := fmt.Sprintf("waiting for lock %s: ", l.Lock)
	switch {
	case l.Holder == nil:
		s += "it is free, and goes to the first in the queue"
	case l.Holders > 1:
		s += fmt.Sprintf("shared by %d, the first being %s, since %s", l.Holders, holderText(l.Holder), sinceText(l.Since, now))
	default:
		s += fmt.Sprintf("held by %s since %s", holderText(l.Holder), sinceText(l.Since, now))
	}
	for i := range l.Waiters {
		if w := &l.Waiters[i]; w.Host == host && w.PID == int64(pid) {
			return s + fmt.Sprintf(", %d before you in the queue", i)
		}
	}
	return s + fmt.Sprintf(", %d in the queue", l.QueueLength)
}

// hostname returns this host as servers are told of it; it is for people, and may be empty.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return clip(host)
}

// terminalWidth returns how many characters a line of a terminal has, 0 if w is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return cmp.Or(int(size.Col), 80)
}
