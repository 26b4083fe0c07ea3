// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// Two hosts exchange lines of JSON over one TCP connection. The caller sends
// hello; the listener answers with welcome, which has the name of a directory that it has made
// for the trial, and then answers one call after the other until goodbye.
//
// There is no authentication: everyone who reaches the port during the trial can make
// files in that one directory, with the names and sizes that call.validate permits.

// protocol is the version of this protocol. Both ends must have the same.
const protocol = 1

const (
	// maxLine bounds a line, in bytes: a call with the most data, in base64.
	maxLine = 32 << 10
	// maxGoodbye bounds the line with the findings, in bytes.
	maxGoodbye = 256 << 10
	// helloWait is how long a connection may stay silent before hello.
	helloWait = 10 * time.Second
	// callWait is how long one call may take, and the longest time between two calls.
	callWait = 2 * time.Minute
)

// hello is the first line of the caller.
type hello struct {
	Protocol int `json:"holdfast_doctor"`
}

// welcome is the first line of the listener.
type welcome struct {
	Protocol int    `json:"holdfast_doctor"`
	Dir      string `json:"dir"`
	// Path is the listener's path of the examined directory, for people.
	Path  string `json:"path"`
	Error string `json:"error,omitempty"`
	// Client is the identity of the listener's host for the NFS server of that directory; nil = it is
	// not on NFSv4, or the listener is of an older version.
	Client *nfsClient `json:"nfs_client,omitempty"`
}

// request is every later line of the caller: a call or, once, goodbye.
type request struct {
	Call    *call    `json:"call,omitempty"`
	Goodbye *goodbye `json:"goodbye,omitempty"`
}

// goodbye sends the findings to the listener.
type goodbye struct {
	Findings  []Finding `json:"findings"`
	Rounds    int       `json:"rounds"`
	Staleness string    `json:"staleness"`
}

var errTooLong = errors.New("a line is too long")

// decodeRequest decodes and validates one line of the caller.
func decodeRequest(line []byte) (request, error) {
	var q request
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return q, fmt.Errorf("read a request: %w", err)
	}
	switch {
	case (q.Call == nil) == (q.Goodbye == nil):
		return q, errors.New("a request is one call or goodbye")
	case q.Goodbye != nil:
		return q, nil
	case len(line) > maxLine:
		return q, errTooLong
	}
	return q, q.Call.validate()
}

// lines reads and writes the lines of one connection.
type lines struct {
	conn net.Conn
	in   *bufio.Reader
}

func newLines(c net.Conn) *lines { return &lines{c, bufio.NewReaderSize(c, maxGoodbye)} }

// read returns the next line; it is valid until the next read.
func (l *lines) read(wait time.Duration) ([]byte, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	line, err := l.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = errTooLong
	}
	return line, err
}

func (l *lines) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(helloWait)); err != nil {
		return err
	}
	_, err = l.conn.Write(append(b, '\n'))
	return err
}

// remoteAgent is an agent on another host. It belongs to one goroutine at a time.
type remoteAgent struct {
	lines *lines
	label string
	way   time.Duration // how long a call takes to get there
}

// dial connects to a listener and sends hello.
func dial(ctx context.Context, addr string) (*remoteAgent, welcome, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, welcome{}, fmt.Errorf("%w: is holdfast doctor --listen running there?", err)
	}
	h := &remoteAgent{lines: newLines(conn)}
	w, err := h.greet(ctx)
	if err != nil {
		return nil, w, errors.Join(fmt.Errorf("doctor at %s: %w", addr, err), conn.Close())
	}
	h.label = w.Path + " at " + addr
	return h, w, nil
}

func (h *remoteAgent) greet(ctx context.Context) (w welcome, err error) {
	if err := h.lines.write(hello{protocol}); err != nil {
		return w, err
	}
	line, err := h.lines.read(helloWait)
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return w, fmt.Errorf("that is no holdfast doctor: %w", err)
	}
	if w.Error != "" {
		return w, errors.New(w.Error)
	}
	if w.Protocol != protocol {
		return w, fmt.Errorf("it speaks version %d of the protocol and this one %d: use the same binary on both hosts", w.Protocol, protocol)
	}
	if err := checkTrialDir(w.Dir); err != nil {
		return w, err
	}
	return w, h.measure(ctx)
}

// measure sets way to half of the shortest round trip.
func (h *remoteAgent) measure(ctx context.Context) error {
	const tries = 10
	for i := range tries {
		began := time.Now()
		if _, err := h.do(ctx, call{Op: opNothing}); err != nil {
			return err
		}
		if way := time.Since(began) / 2; i == 0 || way < h.way {
			h.way = way
		}
	}
	return nil
}

func (h *remoteAgent) String() string { return h.label }

func (h *remoteAgent) distance() time.Duration { return h.way }

func (h *remoteAgent) do(_ context.Context, c call) (r reply, err error) {
	if err := h.lines.write(request{Call: &c}); err != nil {
		return r, err
	}
	line, err := h.lines.read(callWait)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("read a reply: %w", err)
	}
	if r.Outcome == "" || len(r.Data) > maxData {
		return r, fmt.Errorf("a reply with the outcome %q and %d bytes", r.Outcome, len(r.Data))
	}
	return r, nil
}

// close sends goodbye with the findings of r, and closes the connection.
func (h *remoteAgent) close(r *Report) error {
	err := h.lines.write(request{Goodbye: &goodbye{r.Findings, r.Rounds, r.Staleness}})
	return errors.Join(err, h.lines.conn.Close())
}
