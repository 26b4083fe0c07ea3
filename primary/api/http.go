// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Limits against clients that are slow or send too much.
const (
	maxHTTPHeader  = 16 << 10
	maxJSONBody    = 64 << 10
	headerWait     = 5 * time.Second
	idleWait       = 2 * time.Minute
	bodyWait       = 30 * time.Second // to read a request's body, and to write an answer
	maxHTTPStreams = 1000
)

// HTTPOptions are what the HTTP front end needs besides its backend.
type HTTPOptions struct {
	Log zerolog.Logger
	// Transport reaches the primary; nil means one of its own.
	Transport http.RoundTripper
}

// HTTP is the HTTP/JSON front end.
type HTTP struct {
	s   *service
	opt HTTPOptions
	mux *http.ServeMux
	// guard refuses what a web page of another site has a browser send.
	guard   *http.CrossOriginProtection
	encoded encodedEvents
}

// NewHTTP makes the HTTP front end of b.
func NewHTTP(b Backend, opt HTTPOptions) *HTTP {
	if opt.Transport == nil {
		opt.Transport = newTransport()
	}
	h := &HTTP{s: newService(b), opt: opt, mux: http.NewServeMux(), guard: http.NewCrossOriginProtection()}
	for route, f := range h.routes() {
		h.handle(route, f)
	}
	h.mux.HandleFunc("/", h.nowhere)
	return h
}

// Server is an HTTP server for this front end, HTTP/1.1 and HTTP/2 without TLS, with time-outs
// against slow clients. The caller gives it a listener.
func (h *HTTP) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, Protocols: protocols,
		ReadHeaderTimeout: headerWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHTTPHeader,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxHTTPStreams, SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
		ErrorLog: log.New(h.opt.Log.With().Str("front_end", "http").Logger(), "", 0),
	}
}

// clusterHeader says of an answer which cluster gives it, and of a request for which it is meant.
const clusterHeader = "Holdfast-Cluster"

// meantForAnother refuses a request that is meant for another cluster: names, tokens and LSNs mean
// something else here. Only what tells who is here answers everybody.
func (h *HTTP) meantForAnother(w http.ResponseWriter, r *http.Request) bool {
	meant := r.Header.Get(clusterHeader)
	if meant == "" || meant == h.s.cluster {
		return false
	}
	switch r.URL.Path {
	case "/v1/status", "/healthz", "/readyz":
		return false
	}
	h.refuse(w, http.StatusPreconditionFailed, wire.Invalid(fmt.Sprintf(
		"this server belongs to cluster %s, and the request is meant for cluster %s: look at the address; nothing was done", h.s.cluster, meant)))
	return true
}

// ServeHTTP answers one request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(clusterHeader, h.s.cluster)
	if err := h.guard.Check(r); err != nil {
		h.refuse(w, http.StatusForbidden, &wire.Error{Status: cluster.StatusPermissionDenied, Message: err.Error()})
		return
	}
	if !h.meantForAnother(w, r) {
		h.mux.ServeHTTP(w, r)
	}
}

// routes are the methods and paths that are served.
func (h *HTTP) routes() map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"POST /v1/append":         h.append,
		"GET /v1/locks":           h.listLocks,
		"GET /v1/locks/{name...}": h.getLock,
		"GET /v1/watch":           h.events,
		"GET /v1/history":         h.history,
		"GET /v1/files":           h.listFiles,
		"GET /v1/files/{name...}": h.readFile,
		"GET /v1/blame/{name...}": h.blameFile,
		"GET /v1/status":          h.status,
		"GET /healthz":            h.healthz,
		"GET /readyz":             h.readyz,
	}
	for name, parse := range h.writes() {
		routes["POST /v1/"+name] = func(w http.ResponseWriter, r *http.Request) { h.write(w, r, parse) }
	}
	return routes
}

// handle serves a path with one method, and tells others which it is.
func (h *HTTP) handle(route string, f http.HandlerFunc) {
	method, path, _ := strings.Cut(route, " ")
	h.mux.HandleFunc(route, f)
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		h.refuse(w, http.StatusMethodNotAllowed, wire.Invalid(fmt.Sprintf("%s: use %s", r.Method, method)))
	})
}

// nowhere answers what has no route.
func (h *HTTP) nowhere(w http.ResponseWriter, r *http.Request) {
	h.refuse(w, http.StatusNotFound, wire.Invalid(fmt.Sprintf(
		"there is nothing at %q: POST /v1/acquire, /v1/release and so on, GET /v1/locks, /v1/files, /v1/watch, /v1/history or /v1/status", r.URL.Path)))
}

// reply is an answer ready to be sent.
type reply struct {
	status    cluster.Status
	committed bool // says that an append is in the log, whatever the status
	code      int
	body      []byte
}

// newReply encodes an answer. Code 0 means that of the status.
func newReply(status pb.Status, code int, body any) reply {
	s := wire.FromStatus(status)
	if code == 0 {
		code = wire.HTTPCode(s)
	}
	b, err := json.Marshal(body)
	if err != nil { // bodies are structs of numbers and strings
		panic(fmt.Sprintf("encode %T: %v", body, err))
	}
	return reply{status: s, code: code, body: append(b, '\n')}
}

// answerReply is an answer in JSON, with a message for people where it has none.
func answerReply(a *pb.Answer, code int) reply {
	body := wire.BodyOf(a)
	if err := wire.Err(wire.FromStatus(a.GetStatus())); body.Message == "" && err != nil {
		body.Message = err.Error()
	}
	x := newReply(a.GetStatus(), code, body)
	x.committed = a.GetCommitted()
	return x
}

// send writes the answer.
func (h *HTTP) send(w http.ResponseWriter, x reply) {
	// What the connection does not support or does not take is the client's loss.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWait))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(x.body)))
	if x.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(x.code)
	_, _ = w.Write(x.body)
}

// standStill lets an answer that is not complete wait for what it tells next. The deadline of
// its last piece stays over HTTP/1, where it counts while something is written only; HTTP/2
// ends a stream whose deadline passes in any case.
func standStill(r *http.Request, c *http.ResponseController) {
	if r.ProtoMajor > 1 {
		_ = c.SetWriteDeadline(time.Time{})
	}
}

// refuse answers a request that was not understood. Code 0 means that of the status.
func (h *HTTP) refuse(w http.ResponseWriter, code int, err error) {
	h.send(w, answerReply(refusal(err), code))
}

// readBody reads at most limit bytes, and not for ever.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	large := &wire.Error{Status: cluster.StatusTooLarge, Message: fmt.Sprintf("the body is longer than %d bytes", limit)}
	if r.ContentLength > limit {
		return nil, large
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyWait)) // not everything that calls a handler has deadlines
	var b bytes.Buffer
	b.Grow(int(max(0, r.ContentLength)) + bytes.MinRead)
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, large
	}
	if err != nil {
		return nil, wire.Invalid("the body cannot be read: " + err.Error())
	}
	_ = c.SetReadDeadline(time.Time{}) // a waiting call may take as long as it likes
	return b.Bytes(), nil
}

// write answers a request that goes to the primary.
func (h *HTTP) write(w http.ResponseWriter, r *http.Request, parse func([]byte) (*operation, error)) {
	body, err := readBody(w, r, maxJSONBody)
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	o, err := parse(body)
	if err != nil {
		h.refuse(w, 0, err)
		return
	}
	h.execute(w, r, o)
}

// execute runs an operation for a client and sends the answer.
func (h *HTTP) execute(w http.ResponseWriter, r *http.Request, o *operation) {
	h.send(w, h.answer(r.Context(), o, r.Header.Get(forwardedHeader) == ""))
}

// answer runs an operation for a client, and cleans up behind one who is gone or who will
// not know what it has.
func (h *HTTP) answer(ctx context.Context, o *operation, mayForward bool) reply {
	x, err := h.run(ctx, o, mayForward)
	if o.cleanUp && (ctx.Err() != nil || x.status == cluster.StatusUnknown) {
		abandon(ctx, o.request, h.executeAnywhere)
	}
	if err != nil {
		// The client is gone or this server stops: if anybody reads this, it is true.
		x = o.unknown("the call ended before its answer")
	}
	return x
}

// run executes an operation here or, if it may, where the primary is. An operation
// that was under way when this server's reign ended goes on at the next primary.
func (h *HTTP) run(ctx context.Context, o *operation, mayForward bool) (reply, error) {
	x, err := o.local(ctx)
	if err != nil || !mayForward {
		return x, err
	}
	if x.status == cluster.StatusSecondaryMode || x.status == cluster.StatusUnknown && !x.committed && o.repeatable {
		return h.forward(ctx, o, x)
	}
	return x, nil
}
