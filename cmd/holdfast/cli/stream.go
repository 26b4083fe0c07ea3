// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// collectTime is how long lines are collected for one append, from the first of them on. The
	// rest of the second in which they are to be durable is for the lock and the append.
	collectTime = 500 * time.Millisecond
	// retryPause is the time between two attempts while no server takes appends.
	retryPause = 500 * time.Millisecond
)

// streaming is a `holdfast append` that appends lines as they come.
//
// Exactly once: there is one append at a time. When it is not known whether an append was executed,
// it is cancelled before anything else is sent: then it was executed, or never will be. Only in
// the second case are its lines appended again.
type streaming struct {
	*appending
	client *clientlib.Client
	in     *batcher
	// sure is what is certainly in the file.
	sure streamed
	// within is true if the file ends within a line of the input.
	within bool
	// since is when the present trouble began; zero = the last append was answered.
	since time.Time
}

// streamed is the JSON result of a stream: the first append's offset, the length of all, and
// otherwise the last append.
type streamed struct {
	wire.Body
	Lines   int64 `json:"lines"`
	Batches int64 `json:"batches"`
}

// streamError reports that a stream ended early.
type streamError struct {
	lock, file string
	// lines and bytes of the input are certainly in the file.
	lines, bytes int64
	// doubtful is how many bytes after them may be in the file, or not.
	doubtful int
	err      error
}

func (e *streamError) Error() string {
	s := ""
	switch {
	case e.bytes == 0 && e.doubtful == 0:
		return fmt.Sprintf("%v: nothing of the standard input was appended to %s", e.err, e.file)
	case e.bytes == 0:
		s = fmt.Sprintf("%v: nothing of the standard input was certainly appended to %s", e.err, e.file)
	default:
		s = fmt.Sprintf("%v: the first %s of the standard input (%s) are certainly in %s", e.err, counted(uint64(e.bytes), "byte"), counted(uint64(e.lines), "line"), e.file)
	}
	if e.doubtful > 0 {
		s += fmt.Sprintf("; it is not known of the next %s", counted(uint64(e.doubtful), "byte"))
	}
	return s
}

func (e *streamError) Unwrap() error { return e.err }

// advice tells how to go on after the lines that are in the file.
func (e *streamError) advice() string {
	first := ""
	if e.doubtful > 0 {
		first = fmt.Sprintf("look at the end of the file with holdfast tail %s; if the next bytes are not there, ", e.file)
	}
	if told, ok := errors.AsType[*wire.Error](e.err); ok && told.Committed && told.Status == cluster.StatusUnknown { // it is written once that can be
		first = "first correct what holdfast status shows: the servers write the next bytes then. After that, " + first
	}
	split := ""
	if errors.Is(e.err, wire.Err(cluster.StatusTooLarge)) {
		split = "--split "
	}
	return fmt.Sprintf("%sgo on after them: tail -c +%d INPUT | holdfast append %s%s %s", first, e.bytes+1, split, e.lock, e.file)
}

// doubtError reports an append of which it cannot be known whether it was executed.
type doubtError struct{ err error }

func (e *doubtError) Error() string { return e.err.Error() }
func (e *doubtError) Unwrap() error { return e.err }

// errNotExecuted reports an append that certainly was not executed, and never will be.
var errNotExecuted = errors.New("the append was not executed")

// comesInPieces reports whether a standard input is a pipe, a terminal or the like, whose data come
// over time.
func comesInPieces(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeCharDevice|os.ModeSocket) != 0
}

// stream appends the lines of the standard input as they come, until it ends or a signal comes.
func (x *appending) stream(ctx context.Context) (err error) {
	s := &streaming{appending: x, in: newBatcher(x.split)}
	s.sure.Body = wire.Body{Status: cluster.StatusOK.String(), Lock: x.lock, File: x.file} // of an input that is empty
	s.client, err = x.app.newClient(clientlib.Options{Holder: x.app.ownHolder()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.client.Close()) }()
	// The first signal ends the input: what was read is still appended. The next one ends this
	// process.
	reading, stop := untilSignal(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(reading, func() { time.AfterFunc(remote.DefaultBudget, cancel) })()
	err = s.run(ctx, reading.Done(), newPump(x.app.Stdin))
	if err == nil && reading.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		failed := &streamError{lock: x.lock, file: x.file, lines: s.sure.Lines, bytes: s.size(), err: err}
		if _, doubt := errors.AsType[*doubtError](err); doubt {
			data, _ := s.in.batch(true)
			failed.doubtful = len(data)
		}
		return failed
	}
	if s.within {
		s.sure.Lines++ // the last one has no newline
	}
	return x.tell(s.sure, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s in %s, up to LSN %d\n", x.file, counted(uint64(s.sure.Lines), "line"), counted(uint64(s.sure.Batches), "append"), s.sure.LSN)
	})
}

// run appends what the pump reads until its end, or until stop is closed.
func (s *streaming) run(ctx context.Context, stop <-chan struct{}, from *pump) error {
	var rest []byte
	var timer <-chan time.Time
	for due, end := false, false; ; {
		if rest = s.in.add(rest); !s.in.full() && !due && !end {
			select {
			case chunk, more := <-from.chunks:
				if rest, end = chunk, !more; timer == nil {
					timer = time.After(collectTime)
				}
			case <-timer:
				due = true
			case <-stop:
				end = true
			}
			continue
		}
		data, err := s.in.batch(end && len(rest) == 0)
		if err != nil {
			return err
		}
		if len(data) > 0 {
			if err := s.send(ctx, data); err != nil {
				return err
			}
			s.in.cut(len(data))
		}
		if due, timer = false, nil; len(rest) > 0 {
			timer = time.After(collectTime)
		}
		if end && len(s.in.buf) == 0 && len(rest) == 0 {
			select {
			case <-stop:
				return nil
			default:
				return readError(from.err)
			}
		}
	}
}

func readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read the standard input: %w", err)
}

// send appends one batch, exactly once. It tries on while that may succeed.
func (s *streaming) send(ctx context.Context, data []byte) error {
	for {
		r, err := s.try(ctx, data)
		if err == nil {
			s.note(&r, data)
			return nil
		}
		if err := s.again(ctx, err); err != nil {
			return err
		}
	}
}

// size returns how many bytes are certainly in the file.
func (s *streaming) size() int64 {
	if s.sure.Place == nil {
		return 0
	}
	return s.sure.Length
}

// note records that a batch is in the file.
func (s *streaming) note(r *clientlib.Receipt, data []byte) {
	if s.sure.Place == nil {
		s.sure.Place = &wire.Place{Offset: r.Offset}
	}
	s.sure.Protected, s.sure.Length, s.sure.CRC32C = true, s.sure.Length+r.Length, r.CRC32C
	s.sure.Token, s.sure.Epoch, s.sure.LSN, s.sure.Generation = uint64(r.Token), uint64(r.Epoch), uint64(r.LSN), uint64(r.Generation)
	s.sure.Batches++
	s.sure.Lines += int64(bytes.Count(data, []byte("\n")))
	s.within = data[len(data)-1] != '\n'
	if !s.since.IsZero() {
		s.since = time.Time{}
		s.say("appends to %s go on", s.file)
	}
}

// again waits before another attempt. It returns an error if none can succeed, or if there was
// no success for too long.
func (s *streaming) again(ctx context.Context, failed error) error {
	if ctx.Err() != nil {
		return errors.Join(errInterrupted, failed)
	}
	if !s.passing(failed) {
		return s.lease.conflicts(failed)
	}
	now := time.Now()
	patience := s.patience
	if s.sure.Batches == 0 { // it never worked: rather a wrong address than a restart
		patience = s.app.budget
	}
	if s.since.IsZero() {
		s.since = now
		if s.sure.Batches > 0 && !errors.Is(failed, errNotExecuted) {
			s.say("nothing can be appended to %s: %v: trying on for %v", s.file, failed, patience)
		}
	}
	if now.Sub(s.since) >= patience {
		return failed
	}
	select {
	case <-time.After(retryPause):
		return nil
	case <-ctx.Done():
		return errors.Join(errInterrupted, failed)
	}
}

// passing reports whether another attempt may succeed after this error.
func (s *streaming) passing(err error) bool {
	if _, doubt := errors.AsType[*doubtError](err); doubt {
		return false // it could append the lines twice
	}
	if errors.Is(err, errNotExecuted) {
		return true
	}
	if errors.Is(err, clientlib.ErrLost) || errors.Is(err, wire.ErrLeaseExpired) || errors.Is(err, wire.ErrInvalidToken) {
		return s.token == 0 // a lock of its own is acquired anew
	}
	if status, ok := wire.StatusOf(err); ok {
		return !retry.OfStatus(status, false).Final()
	}
	return unanswered(err)
}

func (s *streaming) say(format string, args ...any) {
	if s.app.format == formatText && !s.lease.quiet {
		fmt.Fprintf(s.app.Stderr, "holdfast: %s\n", wire.Visible(fmt.Sprintf(format, args...)))
	}
}

// try makes one append: under the token that was given, or under a lock that it acquires for that.
func (s *streaming) try(ctx context.Context, data []byte) (clientlib.Receipt, error) {
	if s.token != 0 {
		return s.append(ctx, s.client.Attach(cluster.LockName(s.lock), cluster.Token(s.token)), data)
	}
	wait, err := s.lease.waitFor()
	if err != nil {
		return clientlib.Receipt{}, err
	}
	if wait == forever {
		wait = clientlib.Forever
	}
	stop := s.app.reportWait(ctx, s.lock, &s.lease, waiting{host: hostname(), pid: os.Getpid()})
	lock, err := s.client.Acquire(ctx, cluster.LockName(s.lock), clientlib.AcquireOptions{TTL: s.lease.ttl, Wait: wait, Metadata: s.lease.metadata})
	stop()
	if err != nil {
		return clientlib.Receipt{}, err
	}
	r, err := s.append(ctx, lock, data)
	// If it cannot be released it ends with its lease.
	_ = lock.Release(context.WithoutCancel(ctx))
	return r, err
}

// append appends a batch under a lock. Any error but a *doubtError says that it was not appended.
func (s *streaming) append(ctx context.Context, lock *clientlib.Lock, data []byte) (clientlib.Receipt, error) {
	var opts []clientlib.AppendOption
	if s.adopt {
		opts = append(opts, clientlib.AdoptExisting())
	}
	r, err := lock.Append(ctx, cluster.FileName(s.file), data, opts...)
	if err == nil {
		return r, nil
	}
	told, ok := errors.AsType[*wire.Error](err)
	switch {
	case ok && told.Committed: // it is in the log, and nobody knows whether it comes to be in the file
		return r, &doubtError{err}
	case !errors.Is(err, wire.ErrUnknown):
		return r, err
	}
	return s.settle(ctx, err)
}

// settle finds out what became of an append, and cancels it if it was not executed. It sends
// nothing else before that is known: the next request of this client has the service forget it.
func (s *streaming) settle(ctx context.Context, failed error) (r clientlib.Receipt, err error) {
	request, ok := errors.AsType[*clientlib.CallError](failed)
	if !ok {
		return r, &doubtError{failed}
	}
	for {
		o, err := s.client.Cancel(ctx, request.Client, request.Request)
		switch {
		case err != nil:
			if s.again(ctx, err) != nil {
				return r, &doubtError{failed}
			}
		case o.Err != nil:
			return r, &doubtError{o.Err}
		case o.Receipt != nil && o.State == "executed":
			return *o.Receipt, nil
		case o.State == "cancelled":
			return r, errNotExecuted
		default:
			return r, &doubtError{failed}
		}
	}
}
