// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// watching holds the flags and state of one `holdfast watch`.
type watching struct {
	a        *app
	o        clientlib.WatchOptions
	after    uint64
	kinds    []string
	until    []string
	bookmark time.Duration
	count    int
	cell     int // to watch, of a site; negative = where the names are
	out      *bufio.Writer
}

const watchHelp = `Print what happens to locks, as it happens: one line for each event, or one JSON object.

It begins with the current state; then come the events in order and without gaps. When
its server fails it resumes at another one. If no server has the events any more, the
state comes again, after a line that begins with -- and gives the reason.

  holdfast watch                                    everything
  holdfast watch jobs/a                             one lock
  holdfast watch --prefix jobs/ --kinds grant,break some events of some locks
  holdfast watch jobs/a --until release             ends with the next release
  holdfast watch --after 1042 -o json | jq .lock    resumes after an LSN

In a site, whose cells have no common order, watch names of one cell, or one cell by --cell.

It ends with Ctrl-C, or when the reader of its output is gone.`

func (a *app) watchCommand() *cobra.Command {
	w := &watching{a: a}
	c := &cobra.Command{
		Use: "watch [LOCK]", Short: "Print what happens to locks", Long: watchHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("watch: give one lock, or --prefix for several, not %d arguments; see holdfast watch --help", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.options(args); err != nil {
				return err
			}
			return w.a.withClient(c.Context(), w.run)
		},
	}
	fl := c.Flags()
	fl.StringVar(&w.o.Prefix, "prefix", "", "all locks whose names begin with this")
	fl.Uint64Var(&w.after, "after", 0, "begin after the event of this LSN, not with the state")
	fl.StringSliceVar(&w.kinds, "kinds", nil, "only these events, with commas between: "+strings.Join(wire.EventWords(), ", ")+" (default all but append)")
	fl.DurationVar(&w.bookmark, "bookmark", 0, "print at least this often up to which LSN all events were printed")
	fl.StringSliceVar(&w.until, "until", nil, "end after the first event of one of these kinds")
	fl.IntVar(&w.cell, "cell", -1, "everything in the cell of this number, in a site of several")
	fl.IntVar(&w.count, "count", 0, "end after this many events; the state and bookmarks do not count")
	return c
}

// options checks the flags and turns them into the client's options.
func (w *watching) options(args []string) error {
	if len(args) > 0 {
		if w.o.Lock = cluster.LockName(args[0]); w.o.Prefix != "" {
			return usagef("watch: give a lock or --prefix, not both")
		}
		if err := w.o.Lock.Validate(); err != nil {
			return usagef("%v", err)
		}
	}
	if len(w.o.Prefix) > cluster.MaxLockName {
		return usagef("--prefix: at most %d bytes", cluster.MaxLockName)
	}
	if w.count < 0 || w.bookmark < 0 {
		return usagef("--count and --bookmark must not be negative")
	}
	for _, words := range [][]string{w.kinds, w.until} {
		for _, word := range words {
			if _, err := wire.ParseEventWord(word); err != nil {
				return usagef("%v", err)
			}
		}
	}
	w.o.After, w.o.Bookmark = cluster.LSN(w.after), w.bookmark
	// The kinds of --until have to be watched, too.
	words := w.kinds
	switch {
	case len(words) > 0:
		words = append(words, w.until...)
	case slices.Contains(w.until, string(clientlib.EventAppend)):
		words = wire.EventWords()
	}
	for _, word := range words {
		w.o.Kinds = append(w.o.Kinds, clientlib.EventKind(word))
	}
	return nil
}

// errNoReader ends a watch whose output has no reader any more.
var errNoReader = errors.New("the output has no reader any more")

// run watches until the end given by the flags, or until the output has no reader.
func (w *watching) run(ctx context.Context, c *clientlib.Client) error {
	if w.cell >= 0 {
		var err error
		if c, err = c.Cell(ctx, cluster.CellID(w.cell)); err != nil {
			return err
		}
	}
	w.a.outputTaken = true // it has events only
	w.out = bufio.NewWriterSize(w.a.Stdout, 1<<16)
	ctx, unread := context.WithCancelCause(ctx)
	defer unread(nil)
	// SIGPIPE would end the process before it could clean up.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	if f, ok := w.a.Stdout.(*os.File); ok {
		go untilUnread(ctx, f, func() { unread(errNoReader) })
	}
	err := w.follow(ctx, c)
	if errors.Is(err, syscall.EPIPE) || errors.Is(context.Cause(ctx), errNoReader) {
		return nil
	}
	return err
}

// follow prints events until the end given by the flags.
func (w *watching) follow(ctx context.Context, c *clientlib.Client) error {
	left := cmp.Or(w.count, -1)
	for e, err := range c.Watch(ctx, w.o) {
		if err != nil {
			return err
		}
		if err := w.tell(&e); err != nil {
			return err
		}
		if e.Kind == clientlib.EventReset || e.Kind == clientlib.EventBookmark {
			continue
		}
		if left--; left == 0 || slices.Contains(w.until, string(e.Kind)) {
			return nil
		}
	}
	return nil
}

// tell prints one event, unbuffered.
func (w *watching) tell(e *clientlib.Event) error {
	switch {
	case w.a.format == formatJSON:
		if err := writeJSON(w.out, e.Body()); err != nil {
			return err
		}
	case e.Reset != nil:
		resetText(w.out, e)
	case e.Kind == clientlib.EventBookmark:
		fmt.Fprintf(w.out, "-- all events up to LSN %d were printed\n", e.LSN)
	default:
		fmt.Fprintf(w.out, "%s  %d  %-12s  %s  %s\n", stampText(e.Time, w.a.now()), e.LSN, e.Kind, cmp.Or(string(e.Lock), "-"), wire.OneLine(eventText(e)))
	}
	return w.out.Flush()
}

// resetText prints a piece of the state for people.
func resetText(w io.Writer, e *clientlib.Event) {
	r := e.Reset
	if r.Part == 0 {
		fmt.Fprint(w, "-- ")
		if r.Reason != "" {
			fmt.Fprintf(w, "could not go on (%s): ", r.Reason)
		}
		at := e.LSN
		if len(r.Locks) > 0 {
			at = r.Locks[0].LSN
		}
		fmt.Fprintf(w, "the state at LSN %d\n", at)
	}
	for i := range r.Locks {
		l := &r.Locks[i]
		is, words := "free", []string(nil)
		if l.Holder != nil {
			is, words = "held", append(words, fmt.Sprintf("token %d", l.Holder.Token), holderText(l.Holder))
		}
		if l.Metadata != "" {
			words = append(words, fmt.Sprintf("says %q", l.Metadata))
		}
		if l.QueueLength > 0 {
			words = append(words, fmt.Sprintf("%d waiting", l.QueueLength))
		}
		if l.FileCount > 0 {
			words = append(words, counted(uint64(l.FileCount), "file"))
		}
		fmt.Fprintf(w, "%-12s  %d  %-12s  %s  %s\n", "-", l.LSN, is, l.Name, wire.OneLine(strings.Join(words, ", ")))
	}
}

// eventText formats the details of an event besides its time, LSN, kind and lock.
func eventText(e *clientlib.Event) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if e.Token != 0 {
		add("token %d", e.Token)
	}
	if e.Client != "" {
		add("%s", wire.Person{
			Client: string(e.Client), Identity: e.Identity, User: e.Holder.User, Host: e.Holder.Host, PID: int64(e.Holder.PID), Command: e.Holder.Command,
		})
	}
	if e.Limit > 0 {
		add("%s", permitsText(e.Weight, e.Limit))
	} else if e.Shared {
		add("shared")
	}
	switch e.Kind {
	case clientlib.EventGrant, clientlib.EventExtend:
		add("TTL %v", e.TTL)
	case clientlib.EventDowngrade:
		add("shared from now on")
	case clientlib.EventEnqueue:
		add("waits %s", waitText(e.Wait))
	case clientlib.EventAsk:
		add("to let go within %v", e.Wait)
	case clientlib.EventAppend:
		add("%s: %d bytes at offset %d", e.File, e.Length, e.Offset)
	case clientlib.EventForceClear:
		add("all holders and waiters of all locks are gone")
	case clientlib.EventTerm:
		add("server %d is primary in epoch %d", e.Server, e.Epoch)
	default:
		if e.File != "" {
			add("%s, generation %d", e.File, e.Generation)
		}
	}
	if e.Metadata != "" || e.Kind == clientlib.EventMetadata {
		add("says %q", e.Metadata)
	}
	if e.Actor != "" {
		add("by %s", e.Actor)
	}
	if e.Reason != "" {
		add("%q", e.Reason)
	}
	return strings.Join(words, ", ")
}

func waitText(d time.Duration) string {
	if d == clientlib.Forever {
		return "forever"
	}
	return d.String()
}

// untilUnread calls unread when the other end of a pipe is closed, until ctx ends. Without it a
// watch with rare events would outlive its reader.
func untilUnread(ctx context.Context, f *os.File, unread func()) {
	raw, err := f.SyscallConn()
	if err != nil {
		return // then the next write fails
	}
	const every = 250 // milliseconds, to see that ctx has ended
	for ctx.Err() == nil {
		gone := false
		failed := raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd)}}
			_, err = unix.Poll(p, every)
			gone = p[0].Revents&unix.POLLERR != 0
		})
		switch {
		case gone:
			unread()
			return
		case failed != nil, err != nil && !errors.Is(err, unix.EINTR), err == nil && ctx.Err() != nil:
			return
		}
	}
}
