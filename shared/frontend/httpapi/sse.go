// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A watch over HTTP is a stream of server-sent events, from any server and never forwarded. Each
// has a name, the kind, and one line of JSON. The id is where to resume, as Last-Event-ID or after:
// an LSN, or the word reset within a reset, which has to be sent again from its start.
//
// A refusal that is worth another try is sent as an end event to clients that accept event streams
// by name: a browser reconnects after such an event, and never after an HTTP error.

const (
	eventStream = "text/event-stream"
	// fromReset is the id within a reset: begin with one.
	fromReset = "reset"
	// heartbeat is the time without an event after which the stream shows that it lives, and
	// moves the id: shorter than the time-outs of proxies.
	heartbeat = 10 * time.Second
	// maxSSEBookmark is the longest interval of bookmarks.
	maxSSEBookmark = time.Hour
	// SSEWait is how long a client may take to read SSEPiece bytes. A slower one is cut.
	SSEWait  = 10 * time.Second
	SSEPiece = 64 << 10
	// encodings is how many events are kept as they are sent: a power of two.
	encodings = 1 << 10
	// minRetry and retrySpread say when browsers reconnect: not all at once.
	minRetry    = 500 * time.Millisecond
	retrySpread = time.Second
)

// events serves a watch as server-sent events.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	q, err := watchRequest(r)
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	x := &sse{h: h, w: w, r: r, c: http.NewResponseController(w), patient: strings.Contains(r.Header.Get("Accept"), eventStream)}
	every := wire.Millis(q.GetBookmarkMs())
	x.ticks = max(1, int((every+heartbeat-1)/heartbeat)) // to a bookmark
	x.marked = every > 0
	if !x.marked {
		every = heartbeat
	}
	q.BookmarkMs = wire.CeilMillis(every / time.Duration(x.ticks))
	if r.Method == http.MethodHead {
		x.head()
		return
	}
	// An error is a client that went away, or that was cut.
	_ = h.s.Watch(r.Context(), q, x.begin, x.send)
}

// watchRequest reads the query of a watch. The Last-Event-ID of a client that reconnects goes over
// the parameter after.
func watchRequest(r *http.Request) (*pb.WatchRequest, error) {
	q := &pb.WatchRequest{}
	target := ""
	if err := parameters(r, map[string]func(string) error{
		"lock": func(s string) error {
			target += "lock"
			q.Target = &pb.WatchRequest_Lock{Lock: s}
			return cluster.LockName(s).Validate()
		},
		"prefix": func(s string) error {
			target += "prefix"
			q.Target = &pb.WatchRequest_Prefix{Prefix: s}
			return nil
		},
		"after":    func(s string) error { return resumeAt(q, s) },
		"kinds":    func(s string) error { return kindsOf(q, s) },
		"bookmark": func(s string) error { return bookmarkEvery(q, s) },
	}); err != nil {
		return nil, err
	}
	if target != "" && target != "lock" && target != "prefix" {
		return nil, wire.Invalid("give lock or prefix, not both")
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		if err := resumeAt(q, id); err != nil {
			return nil, wire.Invalid("Last-Event-ID: " + err.Error())
		}
	}
	return q, nil
}

func resumeAt(q *pb.WatchRequest, s string) error {
	if q.AfterLsn = nil; s == fromReset {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is neither an LSN nor %s", s, fromReset)
	}
	q.AfterLsn = proto.Uint64(n)
	return nil
}

func kindsOf(q *pb.WatchRequest, s string) error {
	for word := range strings.SplitSeq(s, ",") {
		k, err := wire.ParseEventWord(word)
		if err != nil {
			return err
		}
		q.Kinds = append(q.Kinds, k)
	}
	return nil
}

func bookmarkEvery(q *pb.WatchRequest, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < service.MinBookmark || d > maxSSEBookmark {
		return fmt.Errorf("%q: use a duration from %v to %v, such as 5s", s, service.MinBookmark, maxSSEBookmark)
	}
	q.BookmarkMs = wire.CeilMillis(d)
	return nil
}

// sse is one stream. It belongs to the goroutine of its request, and keeps no buffer
// of its own: there are many, and most are idle.
type sse struct {
	h       *Handler
	w       http.ResponseWriter
	r       *http.Request
	c       *http.ResponseController
	patient bool // the client reconnects by itself, unless it gets an HTTP error
	marked  bool // the client wants bookmarks
	ticks   int  // heartbeats to a bookmark
	passed  int  // heartbeats since the last one
	began   bool // the header was sent
	room    int  // bytes until the client gets more time
}

func (x *sse) head() {
	header := x.w.Header()
	header.Set("Content-Type", eventStream)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // a proxy that buffers would hold events back
	x.w.WriteHeader(http.StatusOK)
}

// begin sends what comes before the first event, once.
func (x *sse) begin() error {
	if x.began {
		return nil
	}
	x.began = true
	x.head()
	x.room = 0
	if err := x.write(fmt.Appendf(nil, "retry: %d\n\n", (minRetry + rand.N(retrySpread)).Milliseconds())); err != nil {
		return err
	}
	return x.flush()
}

// flush sends what was written. The next event may take its time: a deadline that is over counts only for writes.
func (x *sse) flush() error { return x.c.Flush() }

// send sends a message of the watch.
func (x *sse) send(r *pb.WatchResponse) error {
	status := wire.FromStatus(r.GetStatus())
	tooFast := status == cluster.StatusLimited && r.GetRetryAfterMs() > 0
	again := wire.HTTPCode(status) == http.StatusServiceUnavailable || status == cluster.StatusCancelled || tooFast
	if !x.began && status != cluster.StatusOK && !(x.patient && again) {
		a := &pb.Answer{Status: r.Status, Message: r.GetMessage(), Primary: r.GetPrimary(), RetryAfterMs: r.GetRetryAfterMs()}
		x.h.sendRefusal(x.w, x.r, a)
		return nil
	}
	if err := x.begin(); err != nil {
		return err
	}
	x.room = 0
	if err := x.sendEvents(r); err != nil {
		return err
	}
	return x.flush()
}

func (x *sse) sendEvents(r *pb.WatchResponse) error {
	for _, e := range r.GetEvents() {
		x.passed = 0
		if err := x.write(x.h.encoded.of(e)); err != nil {
			return err
		}
	}
	if len(r.GetEvents()) > 0 {
		return nil
	}
	switch b := wire.WatchBodyOf(r); {
	case b.Reset != nil && !b.Reset.Last:
		return x.write(encodeEvent(fromReset, &b))
	case b.Kind == wire.WordBookmark && !x.due():
		return x.write(fmt.Appendf(nil, ": alive\nid: %d\n\n", b.LSN))
	case b.Kind == wire.WordEnd && b.LSN == 0: // nothing was sent: the client has the right id already
		return x.write(encodeEvent("", &b))
	default:
		return x.write(encodeEvent(strconv.FormatUint(b.LSN, 10), &b))
	}
}

// due counts a heartbeat and reports whether it is one for a bookmark.
func (x *sse) due() bool {
	x.passed++
	if !x.marked || x.passed < x.ticks {
		return false
	}
	x.passed = 0
	return true
}

// write writes piece by piece: the client has to read each in time.
func (x *sse) write(b []byte) error {
	for len(b) > 0 {
		if x.room == 0 {
			x.room = SSEPiece
			_ = x.c.SetWriteDeadline(time.Now().Add(SSEWait)) // not everything that calls a handler has deadlines
		}
		n := min(len(b), x.room)
		if _, err := x.w.Write(b[:n]); err != nil {
			return err
		}
		b, x.room = b[n:], x.room-n
	}
	return nil
}

// encodeEvent returns an event as it is sent. Without an id, the client keeps the one before.
func encodeEvent(id string, b *wire.EventBody) []byte {
	data, err := json.Marshal(b)
	if err != nil { // bodies are structs of numbers and strings
		panic(fmt.Sprintf("encode %T: %v", b, err))
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return fmt.Appendf(make([]byte, 0, len(data)+64), "event: %s\n%sdata: %s\n\n", b.Kind, id, data)
}

// encodedEvents keeps the newest events as they are sent, so that all streams share them.
type encodedEvents [encodings]atomic.Pointer[encodedEvent]

type encodedEvent struct {
	event *pb.Event
	text  []byte
}

func (c *encodedEvents) of(e *pb.Event) []byte {
	slot := &c[e.GetLsn()%encodings]
	if x := slot.Load(); x != nil && x.event == e {
		return x.text
	}
	b := wire.EventBodyOf(e)
	x := &encodedEvent{event: e, text: encodeEvent(strconv.FormatUint(b.LSN, 10), &b)}
	slot.Store(x)
	return x.text
}
