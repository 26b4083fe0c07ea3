// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// eventSource is the EventSource of a browser, as the HTML standard describes it,
// but that it takes the next of several addresses when it comes back.
type eventSource struct {
	t      *testing.T
	urls   []string
	client *http.Client
	lastID string
	retry  time.Duration
	cut    context.CancelFunc // of the connection; nil = there is none
	lines  *bufio.Scanner
	opened int
}

// message is one event as a page sees it.
type message struct {
	kind, id, data string
}

// errFailed is a connection that a browser does not try again.
var errFailed = errors.New("the connection failed for good")

func newEventSource(t *testing.T, urls ...string) *eventSource {
	x := &eventSource{t: t, urls: urls, client: &http.Client{Transport: &http.Transport{}}, retry: 3 * time.Second}
	t.Cleanup(x.close)
	return x
}

// close ends the connection, as a network does.
func (x *eventSource) close() {
	if x.cut != nil {
		x.cut()
		x.cut = nil
	}
	x.client.CloseIdleConnections()
}

// open connects, with the last ID if there is one.
func (x *eventSource) open() (err error) {
	ctx, cut := context.WithCancel(x.t.Context())
	defer func() {
		if x.cut = cut; err != nil {
			x.close()
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.urls[x.opened%len(x.urls)], nil)
	if err != nil {
		return err
	}
	x.opened++
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Cache-Control", "no-store")
	if x.lastID != "" {
		r.Header.Set("Last-Event-ID", x.lastID)
	}
	resp, err := x.client.Do(r)
	if err != nil {
		return err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return fmt.Errorf("%w: %s %s: %s", errFailed, resp.Status, kind, b)
	}
	x.lines = lines(resp.Body)
	return nil
}

func lines(r io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	s.Split(anyLine)
	return s
}

// anyLine splits at CR, LF and CRLF.
func anyLine(data []byte, atEOF bool) (int, []byte, error) {
	for i, c := range data {
		switch {
		case c == '\n':
			return i + 1, data[:i], nil
		case c == '\r' && i+1 < len(data) && data[i+1] == '\n':
			return i + 2, data[:i], nil
		case c == '\r' && (i+1 < len(data) || atEOF):
			return i + 1, data[:i], nil
		}
	}
	return 0, nil, nil // what has no end is no line
}

// next is the next event. When the connection ends it comes back after the time
// that the server asked for.
func (x *eventSource) next(ctx context.Context) (message, error) {
	for {
		if x.cut == nil {
			if err := x.open(); errors.Is(err, errFailed) {
				return message{}, err
			}
		}
		if x.cut != nil {
			if m, ok := x.read(ctx); ok {
				return m, nil
			}
			x.close()
		}
		select {
		case <-time.After(x.retry):
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		}
	}
}

// read reads one event, or says false at the end of the stream.
func (x *eventSource) read(ctx context.Context) (m message, ok bool) {
	defer context.AfterFunc(ctx, x.cut)()
	id, data := x.lastID, []string(nil)
	for x.lines.Scan() {
		line := x.lines.Text()
		if !utf8.ValidString(line) {
			x.t.Errorf("no UTF-8: %q", line)
		}
		if line == "" {
			if x.lastID = id; len(data) == 0 {
				m = message{}
				continue
			}
			m.id, m.data = id, strings.Join(data, "\n")
			if m.kind == "" {
				m.kind = "message"
			}
			return m, true
		}
		field, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "event":
			m.kind = value
		case "data":
			data = append(data, value)
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				x.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return message{}, false
}

// event is the next event with its body, whose fields are those of every other one.
func (x *eventSource) event() (message, wire.EventBody) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 30*time.Second)
	defer cancel()
	m, err := x.next(ctx)
	if err != nil {
		x.t.Fatalf("next event: %v", err)
	}
	return m, decodeEvent(x.t, m)
}

func decodeEvent(t *testing.T, m message) (b wire.EventBody) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(m.data))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		t.Fatalf("%q: %v", m.data, err)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(m.data), &fields); err != nil || len(fields) != 25 {
		t.Errorf("%d fields in %s", len(fields), m.data)
	}
	if b.Kind != m.kind {
		t.Errorf("event %q carries %q", m.kind, b.Kind)
	}
	return b
}

// words reads n events, in order, and says what they are. Each can be resumed behind.
func (x *eventSource) words(n int) (words string) {
	x.t.Helper()
	for last := uint64(0); n > 0; n-- {
		m, b := x.event()
		if b.LSN <= last || m.id != strconv.FormatUint(b.LSN, 10) || b.Time == 0 || b.Status != "OK" {
			x.t.Errorf("after LSN %d: id %s, %s", last, m.id, m.data)
		}
		last = b.LSN
		words += " " + b.Kind + ":" + b.Lock
	}
	return words
}
