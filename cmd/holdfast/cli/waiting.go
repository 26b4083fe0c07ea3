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
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
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

// waiting is what waits for a lock, as the servers were told of it.
type waiting struct {
	// identity is that of the request, which may be unknown. Else a process is found by its host
	// and number, which two commands of one shell share.
	identity
	host string
	pid  int
}

// is reports whether it is this one in the queue.
func (x *waiting) is(w *wire.WaiterBody) bool {
	if x.named() {
		return w.ClientID == x.client && w.RequestID == x.request
	}
	return w.Host == locktable.HostOf("", x.host) && w.PID == int64(x.pid)
}

// holds reports whether its own request has the lock. The answer waits at the servers then, for example until what
// was appended before is in the file. A process is no proof of that: a shell may hold one lock by two descriptors.
func (x *waiting) holds(l *wire.LockBody) bool {
	return x.named() && l.Holder != nil && l.Holder.Client == cluster.ClientID(x.client) && l.RequestID == x.request
}

// reportWait reports on the standard error who has the lock for which this command waits, until
// stop is called. me is what waits. On a terminal there is
// one line that changes and is removed at the end; elsewhere there is a line after a second, and then
// ever more rarely.
func (a *app) reportWait(ctx context.Context, lock string, l *lease, me waiting) (stop func()) {
	if wait, err := l.waitFor(); err != nil || wait == 0 || l.quiet || a.format != formatText {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := a.callerAt(ctx, lock, reportAfter)
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
				reportLine(a.Stderr, width, waitingText(&b, me, a.now()))
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
	text = "holdfast: " + wire.OneLine(text)
	if width == 0 {
		fmt.Fprintln(w, text)
		return
	}
	if runes := []rune(text); len(runes) >= width {
		text = string(runes[:max(width-1, 0)]) // a line that wraps could not be removed
	}
	fmt.Fprintf(w, "\r\x1b[K%s", text)
}

// waitingText says for whom me waits, and how many wait before it.
func waitingText(l *wire.LockBody, me waiting, now time.Time) string {
	s := fmt.Sprintf("waiting for lock %s: ", l.Lock)
	switch {
	case me.holds(l):
		return s + "it is granted to this command, and the answer is not here yet: see holdfast status"
	case l.Holder == nil:
		s += "it is free, and goes to the first in the queue"
	case l.Limit > 0:
		s += fmt.Sprintf("%s are taken, those of %s, %s, and of %d more", permitsText(l.PermitsTaken, l.Limit), l.Holder.Person(), heldText(l.Since.Time(), now), max(l.Holders, 1)-1)
	case l.Holders > 1:
		s += fmt.Sprintf("shared by %d, the first being %s, %s", l.Holders, l.Holder.Person(), heldText(l.Since.Time(), now))
	default:
		s += fmt.Sprintf("held by %s, %s", l.Holder.Person(), heldText(l.Since.Time(), now))
	}
	for i := range l.Waiters {
		if me.is(&l.Waiters[i]) {
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
	return host
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
