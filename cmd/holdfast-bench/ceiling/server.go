// SPDX-License-Identifier: Apache-2.0

// Package ceiling measures what this machine allows: a server that does nothing but read a small request
// from each connection, write it with all others of the moment to a log, sync that, and answer. It has no
// locks, no leases, no table, no replicas. So it bounds what a lock service can reach that syncs each
// operation, with the same processors, disk and workers, in the same run.
//
// Requests and answers are frames with a length, on plain TCP; each side has two goroutines a connection,
// and what is queued while a write or a sync is under way goes with the next one. A request that stands
// for an acquire or a release has 64 bytes, its answer 32. The log is written with zeros before.
package ceiling

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
)

// Kind is the kind of the helper that runs Help.
const Kind = "ceiling"

// listening is the message of a helper: where it can be reached.
type listening struct {
	Address string `json:"address"`
}

// Help is the server as a helper; its argument is the path of the log.
func Help(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: give the path of the log", len(args))
	}
	ctx, cancel := helper.UntilEnd(ctx, in)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		return err
	}
	// The log is prepared before anybody connects.
	log, err := openLog(args[0], logBytes)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := json.NewEncoder(out).Encode(listening{l.Addr().String()}); err != nil {
		return errors.Join(err, l.Close(), log.close())
	}
	return errors.Join(serve(ctx, l, log), log.close())
}

// answer is a call that is answered after the next sync.
type answer struct {
	to     *conn
	number uint64
}

// batch is what one sync makes durable.
type batch struct {
	records []byte
	answers []answer
}

// server is the server while it runs. Each connection has a goroutine that reads and one that writes;
// one more commits.
type server struct {
	log  *log
	wake chan struct{} // has a token if filling is not empty
	mu   struct {
		sync.Mutex
		filling batch
	}
}

// conn is a connection. Its reader and the committer queue answers, its writer writes them.
type conn struct {
	net.Conn
	wake chan struct{} // has a token if out is not empty; closed by the reader at its end
	mu   struct {
		sync.Mutex
		out  []byte
		gone bool
	}
}

// serve serves until ctx ends, or the log fails.
func serve(ctx context.Context, l net.Listener, log *log) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{log: log, wake: make(chan struct{}, 1)}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.commit(ctx); err != nil {
			cancel(err)
		}
	})
	stop := context.AfterFunc(ctx, func() { l.Close() }) //nolint:errcheck // it has no state
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				cancel(err)
			}
			break
		}
		running.Go(func() { s.converse(ctx, c) })
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// converse reads the requests of one connection until it ends.
func (s *server) converse(ctx context.Context, raw net.Conn) {
	c := &conn{Conn: raw, wake: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, func() { c.Close() }) //nolint:errcheck // nothing is lost
	defer stop()
	var writing sync.WaitGroup
	writing.Go(c.write)
	r := bufio.NewReaderSize(c, 4<<10)
	for body := make([]byte, 0, requestBytes); ; {
		var number uint64
		var err error
		if number, body, err = readFrame(r, body); err != nil {
			break
		}
		s.mu.Lock()
		first := len(s.mu.filling.answers) == 0
		s.mu.filling.records = appendRecord(s.mu.filling.records, number, body)
		s.mu.filling.answers = append(s.mu.filling.answers, answer{c, number})
		s.mu.Unlock()
		if first {
			signal(s.wake)
		}
	}
	c.mu.Lock()
	c.mu.gone = true
	close(c.wake)
	c.mu.Unlock()
	c.Close() //nolint:errcheck // nothing is lost
	writing.Wait()
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// commit syncs one batch after the other until ctx ends.
func (s *server) commit(ctx context.Context) error {
	var spare batch
	body := make([]byte, answerBytes)
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		now := s.mu.filling
		s.mu.filling = batch{spare.records[:0], spare.answers[:0]}
		s.mu.Unlock()
		if err := s.log.commit(now.records); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		if len(now.answers) == 1 { // nothing gains by another goroutine
			a := now.answers[0]
			a.to.Write(appendFrame(nil, a.number, body)) //nolint:errcheck // its reader sees the end, too
		} else {
			for _, a := range now.answers {
				a.to.queue(a.number, body)
			}
		}
		spare = now
	}
}

// queue adds an answer for the writer.
func (c *conn) queue(number uint64, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.gone {
		return
	}
	first := len(c.mu.out) == 0
	c.mu.out = appendFrame(c.mu.out, number, body)
	if first {
		signal(c.wake)
	}
}

// write writes what is queued, until the reader has ended.
func (c *conn) write() {
	var spare []byte
	for range c.wake {
		c.mu.Lock()
		now := c.mu.out
		c.mu.out = spare[:0]
		c.mu.Unlock()
		if _, err := c.Write(now); err != nil {
			c.Close() //nolint:errcheck // the reader sees it
		}
		spare = now
	}
}
