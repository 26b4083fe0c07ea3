// SPDX-License-Identifier: Apache-2.0

// Package httpapi is the HTTP front end: operations and reads in JSON, watches as server-sent
// events, the bytes of protected files, and the Door for front ends that speak the same JSON. A
// server that is not primary forwards operations one hop, to the primary.
package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/origins"
	"github.com/holdfast-lock/holdfast/shared/frontend/page"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Limits against clients that are slow or send too much.
const (
	maxHTTPHeader = 16 << 10
	maxJSONBody   = 64 << 10
	headerWait    = 5 * time.Second
	idleWait      = 2 * time.Minute
	bodyWait      = 30 * time.Second // to read a request's body, and to write an answer
)

// Options are what a Handler needs besides its service.
type Options struct {
	Log zerolog.Logger
	// Transport sends requests to the primary; nil means a transport of the Handler's own.
	Transport http.RoundTripper
	// Dial connects to another server's address for clients, for that transport. Its errors are *net.OpError with Op
	// "dial", which says that nothing was sent. nil = over TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Pages says which pages of other origins are admitted; nil = none.
	Pages *origins.Policy
	// Metrics serves the metrics of this server; nil = it has none.
	Metrics http.Handler
	// LockMetrics returns what serves the metrics of locks that were read, with the identities of holders if asked to; nil = there are none.
	LockMetrics func(read *pb.ListLocksResponse, holders bool) http.Handler
	// Loops returns by how much each loop of this server is late; nil = they are never late. It must not wait.
	Loops func(time.Time) map[string]time.Duration
}

// Handler is the HTTP front end, as an http.Handler.
type Handler struct {
	s       *service.Service
	opt     Options
	mux     *http.ServeMux
	page    *page.Page
	inner   http.Handler // mux, for requests with their caller
	encoded encodedEvents
	asking  chan struct{} // has an element for each caller for whom the other servers are asked
}

// New returns a front end over s. Its routes are in docs/http.md.
func New(s *service.Service, opt Options) *Handler {
	if opt.Transport == nil {
		opt.Transport = newTransport(opt.Dial)
	}
	if opt.Pages == nil {
		opt.Pages = origins.New(nil)
	}
	h := &Handler{s: s, opt: opt, mux: http.NewServeMux(), page: page.New(), asking: make(chan struct{}, eachAtOnce)}
	methods := map[string][]string{} // by path
	for route, f := range h.routes() {
		method, path, _ := strings.Cut(route, " ")
		h.mux.HandleFunc(route, f)
		methods[path] = append(methods[path], method)
	}
	for path, allowed := range methods {
		h.refuseOthers(path, allowed)
	}
	h.mux.HandleFunc("/", h.notFound)
	h.inner = h.Authenticated(h.mux)
	return h
}

// Server returns an HTTP server for this front end, HTTP/1.1 without TLS, with time-outs against slow clients. The
// caller gives it a listener. (HTTP/2 without TLS is gRPC, see package clientport.)
func (h *Handler) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: h, Protocols: protocols,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return serving.WithRemote(ctx, c.RemoteAddr())
		},
		ReadHeaderTimeout: headerWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHTTPHeader,
		ErrorLog: log.New(h.opt.Log.With().Str("front_end", "http").Logger(), "", 0),
	}
}

// clusterHeader names the cluster that gives an answer, and the one that a request is meant for.
const clusterHeader = "Holdfast-Cluster"

// meantForAnother refuses a request that is meant for another cluster, and reports whether it did:
// names, tokens and LSNs mean something else here. Status and health answer every request.
func (h *Handler) meantForAnother(w http.ResponseWriter, r *http.Request) bool {
	meant := r.Header.Get(clusterHeader)
	if meant == "" || meant == h.s.Cluster() {
		return false
	}
	if slices.ContainsFunc(ops.All(), func(o *ops.Operation) bool { return o.AnyCluster && o.Path() == r.URL.Path }) {
		return false
	}
	h.refuse(w, http.StatusPreconditionFailed, wire.Invalid(fmt.Sprintf(
		"this server belongs to cluster %s, and the request is meant for cluster %s: look at the address; nothing was done", h.s.Cluster(), meant)))
	return true
}

// ServeHTTP answers one request. The page is for everybody: it holds no data, and whoever has a credential gives it there.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(clusterHeader, h.s.Cluster())
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && h.page.Has(r.URL.Path) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWait)) // as for every answer
		h.page.ServeHTTP(w, r)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff") // no answer may become a script of the page
	answered, err := h.opt.Pages.HTTP(w, r)
	if err != nil {
		h.refuse(w, http.StatusForbidden, &wire.Error{Status: cluster.StatusPermissionDenied, Message: err.Error()})
	}
	if answered || err != nil {
		return
	}
	if h.meantForAnother(w, r) {
		return
	}
	h.inner.ServeHTTP(w, r.WithContext(service.OneRequest(r.Context())))
}

// Authenticated returns next for requests whose context has their caller, see serving.CallerOf. Requests with a
// credential that is none are refused, unless they need none, and so are strangers' where the rules give them nothing. A page of a browser cannot set a header for a WebSocket: it offers
// holdfast.bearer.CREDENTIAL as a second protocol.
func (h *Handler) Authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credential := cmp.Or(wire.BearerOf(r.Header.Get("Authorization")), basicCredential(r))
		for _, words := range r.Header["Sec-Websocket-Protocol"] {
			for word := range strings.SplitSeq(words, ",") {
				if c, ok := strings.CutPrefix(strings.TrimSpace(word), bearerProtocol); ok {
					credential = c
				}
			}
		}
		c, err := h.s.Authenticate(credential, serving.RemoteOf(r.Context()))
		needsNone, stranger := (*ops.Operation).Open, false
		if err == nil {
			err = h.s.Stranger(c) // before there is memory for a body, or a WebSocket
			stranger = err != nil
			needsNone = func(o *ops.Operation) bool { return o.Verb == access.Open }
		}
		asked := func(o *ops.Operation) bool { return o.Path() == r.URL.Path && needsNone(o) }
		if err != nil && !slices.ContainsFunc(ops.All(), asked) {
			if stranger {
				err = h.s.TurnAway(c, serving.RemoteOf(r.Context()))
			}
			h.refuse(w, 0, err)
			return
		}
		if err := h.misled(c, r); err != nil {
			h.refuse(w, http.StatusForbidden, &wire.Error{Status: cluster.StatusPermissionDenied, Message: err.Error()})
			return
		}
		next.ServeHTTP(w, r.WithContext(serving.WithCaller(r.Context(), c)))
	})
}

// misled returns an error for a request that a page of another site may have sent under a name of its own, see origins.Policy.Host. Such a
// page has no credential, and over TLS its browser had refused the certificate. Load balancers probe by any name.
func (h *Handler) misled(c *access.Caller, r *http.Request) error {
	if c.Name() != "" || !serving.PlainTCP(serving.RemoteOf(r.Context())) {
		return nil
	}
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz": // they tell only whether this server is well
		return nil
	}
	return h.opt.Pages.Host(r)
}

// bearerProtocol begins the protocol of a WebSocket that is a credential.
const bearerProtocol = "holdfast.bearer."

// routes returns the handlers by method and path.
func (h *Handler) routes() map[string]http.HandlerFunc {
	routes, writes, own := map[string]http.HandlerFunc{}, h.writes(), h.own()
	maps.Copy(own, h.terraformRoutes())
	for _, o := range ops.All() {
		switch {
		case o.Route == "":
		case writes[o.Name] != nil:
			routes[o.Route] = func(w http.ResponseWriter, r *http.Request) { h.write(w, r, writes[o.Name]) }
		default:
			routes[o.Route] = own[o.Name]
		}
	}
	return routes
}

// own returns the handlers of the operations that take no JSON object, by name.
func (h *Handler) own() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"append": h.append, "locks": h.listLocks, "lock": h.getLock, "why": h.whyLock, "watch": h.events, "history": h.history, "files": h.listFiles,
		"file": h.readFile, "blame": h.blameFile, "status": h.status, "whoami": h.whoAmI, "keys": h.keys, "healthz": h.healthz, "livez": h.livez, "readyz": h.readyz, "metrics": h.metrics,
		"lockmetrics": h.lockMetrics,
	}
}

// refuseOthers answers 405 to requests for a path with other methods than those that it has.
func (h *Handler) refuseOthers(path string, methods []string) {
	slices.Sort(methods)
	allowed := strings.Join(methods, ", ")
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowed)
		h.refuse(w, http.StatusMethodNotAllowed, wire.Invalid(fmt.Sprintf("%s: use %s", r.Method, allowed)))
	})
}

// notFound answers what has no route.
func (h *Handler) notFound(w http.ResponseWriter, r *http.Request) {
	h.refuse(w, http.StatusNotFound, wire.Invalid(fmt.Sprintf(
		"there is nothing at %q: the page is at /, POST /v1/acquire, /v1/release and so on, GET /v1/locks, /v1/files, /v1/watch, /v1/history or /v1/status", r.URL.Path)))
}

// reply is an answer ready to be sent.
type reply struct {
	status    cluster.Status
	committed bool // an append is in the log, whatever the status
	code      int
	body      []byte
	plain     bool // the body is plain text for people, and not JSON
}

// retryAfter returns when LIMITED asks its caller to come again; 0 where that does not help, as with a count. An answer without room for it is
// that to a read, which exceeds a rate.
func (x *reply) retryAfter() time.Duration {
	said := struct {
		RetryAfter string `json:"retry_after"`
	}{service.ReadRetry.String()}
	if json.Unmarshal(x.body, &said) != nil { // it is another server's
		return 0
	}
	d, _ := time.ParseDuration(said.RetryAfter) // 0 for what is none
	return d
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

// answerReply encodes an answer, with a message for people where it has none. Code 0 means that of
// the status.
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
func (h *Handler) send(w http.ResponseWriter, x reply) {
	// What the connection does not support or does not take is the client's loss.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyWait))
	w.Header().Set("Content-Type", "application/json")
	if x.plain {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(x.body)))
	switch {
	case x.code == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case x.code == http.StatusTooManyRequests && x.retryAfter() > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(x.retryAfter().Seconds()))))
	}
	w.WriteHeader(x.code)
	_, _ = w.Write(x.body)
}

// refuse answers a request that was refused with err. Code 0 means that of the status.
func (h *Handler) refuse(w http.ResponseWriter, code int, err error) {
	h.send(w, answerReply(service.Refusal(err), code))
}

// readBody reads a body of at most limit bytes, for at most bodyWait. Its errors are for the client.
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
func (h *Handler) write(w http.ResponseWriter, r *http.Request, parse func([]byte) (*operation, error)) {
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
func (h *Handler) execute(w http.ResponseWriter, r *http.Request, o *operation) {
	if x, is := h.elsewhere(w, r, o); is {
		h.send(w, x)
		return
	}
	parent := ""
	if sent := r.Header.Values(wire.TraceparentKey); len(sent) == 1 { // of several none counts
		parent = sent[0]
	}
	x := h.answer(h.traced(r.Context(), o, parent), o, r.Header.Get(forwardedHeader) == "")
	h.send(w, x)
}

// traced returns the context of an operation with its trace, if it is traced: by the traceparent of its caller, "" for none. Without
// one, chance chooses among the requests to the lock table only.
func (h *Handler) traced(ctx context.Context, o *operation, parent string) context.Context {
	if parent == "" && o.request == nil {
		return ctx
	}
	return h.s.Traces().Begin(ctx, parent)
}

// answer runs an operation for a client, and abandons an acquire of a client that is gone or will
// not know what it holds.
func (h *Handler) answer(ctx context.Context, o *operation, mayForward bool) reply {
	x, err := h.run(ctx, o, mayForward)
	if o.cleanUp && (ctx.Err() != nil || x.status == cluster.StatusUnknown) {
		service.Abandon(ctx, o.request, h.executeAnywhere)
	}
	if err != nil {
		// The client is gone or this server stops: if it is read at all, this is true.
		x = o.unknown("the call ended before its answer")
	}
	return x
}

// run executes an operation here or, if it may, where the primary is. An operation
// that was under way when this server's term ended goes on at the next primary, and one that comes while this server
// becomes primary waits for that.
func (h *Handler) run(ctx context.Context, o *operation, mayForward bool) (reply, error) {
	x, err := o.local(ctx)
	if err != nil || !mayForward || !o.forwarded {
		return x, err
	}
	switch v := retry.OfStatus(x.status, x.committed); {
	case v == retry.NotPrimary, v == retry.NotYet, v == retry.Unknown && o.repeatable:
		return h.forward(ctx, o, x)
	}
	return x, nil
}
