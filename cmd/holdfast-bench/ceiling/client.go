// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
)

// Name is the name of the ceiling in the rows.
const Name = "ceiling"

const (
	// startLimit is how long the server may take to prepare its log.
	startLimit = time.Minute
	// dialLimit is how long one connection may take.
	dialLimit = 10 * time.Second
	// dialers is how many connections are made at a time.
	dialers = 64
)

var errClosed = errors.New("the connection is closed")

// Server is the server in a process of its own.
type Server struct {
	process *helper.Process
	address string
}

// Start starts a server whose log is in dir: on the filesystem of the servers that it is compared with.
func Start(ctx context.Context, dir string) (*Server, error) {
	// It only reserves a name: the helper makes the file anew.
	f, err := os.CreateTemp(dir, "ceiling-*.log")
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(f.Name())
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if s.process, err = helper.Start(Kind, path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var l listening
	if err := s.process.Hear(ctx, &l); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.address = l.Address
	return s, nil
}

// PIDs returns its process.
func (s *Server) PIDs() []int { return []int{s.process.PID()} }

// Close ends the server.
func (s *Server) Close() error { return s.process.Close() }

// Clients are connections to a Server that the workers of a load share. It is a bench.Target: each
// acquire, release and append is one durable call. Nothing keeps two workers from holding one key.
type Clients struct {
	server *Server
	links  []*link
}

// Connect makes n connections.
func (s *Server) Connect(ctx context.Context, n int) (*Clients, error) {
	c := &Clients{server: s, links: make([]*link, n)}
	err := bench.Each(n, dialers, func(i int) (err error) {
		c.links[i], err = dial(ctx, s.address)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the ceiling: %w", err), c.Close())
	}
	return c, nil
}

// Name returns the constant Name.
func (c *Clients) Name() string { return Name }

// PIDs returns the process of the server.
func (c *Clients) PIDs() []int { return c.server.PIDs() }

// Locker returns the access of a worker.
func (c *Clients) Locker(_ context.Context, worker int, mode bench.Mode) (bench.Locker, error) {
	if mode != bench.Alone {
		return nil, errors.New("the ceiling has no locks, so none can be contended: use it with own and append")
	}
	return &locker{call: c.links[worker%len(c.links)].newCall(), body: make([]byte, requestBytes)}, nil
}

// Close closes the connections.
func (c *Clients) Close() error {
	return bench.Each(len(c.links), dialers, func(i int) error {
		if c.links[i] == nil {
			return nil
		}
		return c.links[i].close()
	})
}

type locker struct {
	*call
	body []byte
}

func (l *locker) Acquire(context.Context, string) error { return l.do(l.body) }
func (l *locker) Release(context.Context) error         { return l.do(l.body) }
func (l *locker) Close() error                          { return nil }

func (l *locker) Append(_ context.Context, _ string, data []byte) error { return l.do(data) }

// link is a connection. One goroutine reads the answers; callers write, each what has been queued.
type link struct {
	conn    net.Conn
	reading sync.WaitGroup
	mu      struct {
		sync.Mutex
		out, spare []byte
		writing    bool // a caller writes; what is queued meanwhile goes with its next write
		calls      []*call
		err        error // why it ended
	}
}

// call is the place of one caller, who has one call under way at most.
type call struct {
	link   *link
	number uint64     // its place in link.mu.calls
	done   chan error // has room for one
}

func dial(ctx context.Context, address string) (*link, error) {
	d := net.Dialer{Timeout: dialLimit}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{conn: c}
	l.reading.Go(l.read)
	return l, nil
}

func (l *link) newCall() *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &call{link: l, number: uint64(len(l.mu.calls)), done: make(chan error, 1)}
	l.mu.calls = append(l.mu.calls, c)
	return c
}

// do sends a request and waits for its answer, or for the end of the connection.
func (c *call) do(body []byte) error {
	if err := c.link.send(c.number, body); err != nil {
		return err
	}
	return <-c.done
}

// send queues a frame, and writes unless another caller does.
func (l *link) send(number uint64, body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err != nil {
		return l.mu.err
	}
	l.mu.out = appendFrame(l.mu.out, number, body)
	if l.mu.writing {
		return nil
	}
	l.mu.writing = true
	for len(l.mu.out) > 0 {
		now := l.mu.out
		l.mu.out = l.mu.spare[:0]
		l.mu.Unlock()
		_, err := l.conn.Write(now)
		l.mu.Lock()
		l.mu.spare = now
		if err != nil {
			l.conn.Close() //nolint:errcheck // the reader ends the calls
			break
		}
	}
	l.mu.writing = false
	return nil
}

// read hands out answers until the connection ends, and then the reason.
func (l *link) read() {
	r := bufio.NewReaderSize(l.conn, 16<<10)
	var number uint64
	var body []byte
	var err error
	for {
		if number, body, err = readFrame(r, body); err != nil {
			break
		}
		l.mu.Lock()
		known := number < uint64(len(l.mu.calls))
		var c *call
		if known {
			c = l.mu.calls[number]
		}
		l.mu.Unlock()
		if !known {
			err = fmt.Errorf("an answer to call %d, which there is not", number)
			break
		}
		select {
		case c.done <- nil:
		default:
			err = fmt.Errorf("a second answer to call %d", number)
		}
		if err != nil {
			break
		}
	}
	l.conn.Close() //nolint:errcheck // nothing is lost
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.err = errors.Join(errClosed, err)
	for _, c := range l.mu.calls {
		select {
		case c.done <- l.mu.err:
		default: // it has its answer
		}
	}
}

func (l *link) close() error {
	err := l.conn.Close()
	l.reading.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
