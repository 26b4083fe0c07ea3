// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/retry"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
)

// forwardedHeader names the server that forwarded a request; such a request goes no further.
const forwardedHeader = "Holdfast-Forwarded-By"

const (
	dialWait = 500 * time.Millisecond
	// answerWait is how long a primary may take for what needs no waiting.
	answerWait = 10 * time.Second
	// maxDoubts is how many attempts of something repeatable may end in doubt, perhaps executed:
	// beside the one that the end of a primary broke off there may be some on connections to it
	// that were kept.
	maxDoubts = 3
	// maxForwarded bounds an answer that is passed on, in bytes: enough for all that one client
	// holds.
	maxForwarded = 256 << 20
	// maxPath bounds the path of a forward with its query: the rest of the header fits beside it.
	maxPath = maxHTTPHeader / 2
)

// newTransport returns a transport to other servers: HTTP/1.1, with connections that are kept.
func newTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialWait}).DialContext
	}
	return &http.Transport{
		DialContext:           dial,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       idleWait / 2, // before the other side closes it
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
	}
}

// forwardWait returns how long a forward looks for a primary that takes it: long enough for a usual
// failover. The time in which a server had the request does not count.
func (h *Handler) forwardWait() time.Duration {
	t := h.s.Backend().Timing()
	return 4*t.Suspicion + t.FencingPeriod
}

// forward has the primary execute an operation after this server's own answer, which is returned
// if no primary takes it. Attempts that certainly did nothing are repeated; after one that may have
// been executed there are a few more, if the operation is repeatable. From then on, only an answer
// that holds for all attempts is returned, see settles.
func (h *Handler) forward(ctx context.Context, o *operation, own reply) (reply, error) {
	if x, wrong := h.rejectLocally(o); wrong {
		return x, nil
	}
	over := time.Now().Add(h.forwardWait())
	tick := time.NewTicker(h.s.Backend().Timing().Heartbeat)
	defer tick.Stop()
	doubts, said := 0, ", and there is no other yet"
	if own.status == cluster.StatusUnknown {
		doubts = 1
	}
	for {
		if m, epoch, ok := h.s.Backend().Primary(); ok {
			asked := time.Now()
			x, verdict, err := h.attempt(ctx, o, m, epoch)
			if verdict != retry.Unsent {
				// It was there, perhaps in the queue for hours: a failover that comes now
				// gets as much time as one that came at once.
				over = over.Add(time.Since(asked))
			}
			switch {
			case ctx.Err() != nil:
				return reply{}, context.Cause(ctx)
			case answered(verdict) && (doubts == 0 || o.settles(x)):
				return x, nil
			case answered(verdict):
				said = fmt.Sprintf(", and then the answer was %v", x.status)
			case verdict == retry.Unknown:
				h.opt.Log.Debug().Err(err).Uint32("to", uint32(m.ID)).Msg("forwarded, and not known what came of it")
				if doubts++; doubts > maxDoubts || !o.repeatable {
					return o.unknown(fmt.Sprintf("server %d was asked, and its answer is lost", m.ID)), nil
				}
			case verdict != retry.Unsent: // it is not the primary, or not yet
				own = x
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return reply{}, context.Cause(ctx)
		}
		switch {
		case time.Now().Before(over):
		case doubts > 0:
			return o.unknown("a primary was asked and its answer is lost" + said), nil
		default:
			return own, nil
		}
	}
}

// rejectLocally returns the answer to an operation that any primary would refuse, whatever its
// table; wrong reports whether there is such an answer. Parameters that are too long for a header
// must not be sent: the primary's HTTP server would refuse them with an answer that is not JSON.
func (h *Handler) rejectLocally(o *operation) (x reply, wrong bool) {
	q := o.request
	if q == nil {
		return x, false
	}
	status, message := q.Validate(h.s.Backend().Timing())
	if status == cluster.StatusOK && len(o.path) > maxPath {
		status, message = cluster.StatusInvalidArgument, fmt.Sprintf("the parameters take %d bytes, at most %d are allowed", len(o.path), maxPath)
	}
	if status == cluster.StatusOK {
		return x, false
	}
	return answerReply(convert.FromOutcome(&locktable.Outcome{Status: status, Message: message, Client: q.Client, Request: q.ID}), 0), true
}

// answered reports whether a primary answered. Where it takes no requests now, the caller is told so.
func answered(v retry.Verdict) bool { return v.Final() || v == retry.Later }

// attempt asks one server, which may be this one by now. An error is an answer that is lost, or a
// request that did not get there.
func (h *Handler) attempt(ctx context.Context, o *operation, m cluster.Member, epoch cluster.Epoch) (reply, retry.Verdict, error) {
	var x reply
	var err error
	if m.ID == h.s.Self() {
		x, err = o.local(ctx)
	} else {
		x, err = h.ask(ctx, o, m, epoch)
	}
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return x, retry.Unsent, err
		}
		return x, retry.Unknown, err
	}
	return x, retry.OfStatus(x.status, x.committed), nil
}

// errMoved ends a call to a server when another one, or a later term, is primary.
var errMoved = errors.New("another server is primary now")

// ask sends an operation to a server. It gives up when another server is primary, for a paused
// primary may not answer for hours.
func (h *Handler) ask(ctx context.Context, o *operation, m cluster.Member, epoch cluster.Epoch) (x reply, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.wait >= 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.wait+answerWait)
		defer stop()
	}
	go h.cancelWhenMoved(ctx, cancel, m.ID, epoch)
	r, err := http.NewRequestWithContext(ctx, cmp.Or(o.method, http.MethodPost), "http://"+m.HTTPAddress()+o.path, bytes.NewReader(o.body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(forwardedHeader, fmt.Sprint(h.s.Self()))
	h.passOn(ctx, r)
	if t := serving.TraceOf(ctx); t != nil {
		parent, end := t.Forward(m.ID)
		r.Header.Set(wire.TraceparentKey, parent)
		defer func() { end(cmp.Or(x.status, cluster.StatusUnknown)) }()
	}
	resp, err := h.opt.Transport.RoundTrip(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxForwarded))
	if err != nil {
		return reply{}, err
	}
	var said struct {
		Status    string
		Committed bool
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return reply{}, fmt.Errorf("the answer is no JSON: %w", err)
	}
	status, ok := cluster.ParseStatus(said.Status)
	if !ok {
		return reply{}, fmt.Errorf("the answer has status %q", said.Status)
	}
	return reply{status: status, committed: said.Committed, code: resp.StatusCode, body: body}, nil
}

// passOn has the other server know the caller.
func (h *Handler) passOn(ctx context.Context, r *http.Request) {
	if credential := h.s.PassOn(ctx); credential != "" {
		r.Header.Set("Authorization", wire.Bearer+credential)
	}
}

// cancelWhenMoved cancels a call to a server when another one, or a later term, is primary. It
// ends with ctx.
func (h *Handler) cancelWhenMoved(ctx context.Context, cancel context.CancelCauseFunc, id cluster.ServerID, epoch cluster.Epoch) {
	t := time.NewTicker(h.s.Backend().Timing().Suspicion)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if m, now, ok := h.s.Backend().Primary(); ok && (m.ID != id || now > epoch) {
			cancel(errMoved)
			return
		}
	}
}

// proxyToPrimary has the primary answer a GET whose answer may be long, and sends it on as it
// comes. It returns false if nothing was sent. An answer that breaks off is broken off here, too. What another cell has is answered here, because the
// primary leads no client of another server.
func (h *Handler) proxyToPrimary(w http.ResponseWriter, r *http.Request) bool {
	if h.sendElsewhere(w, r) {
		return true
	}
	over := time.Now().Add(h.forwardWait())
	tick := time.NewTicker(h.s.Backend().Timing().Heartbeat)
	defer tick.Stop()
	for time.Now().Before(over) {
		if m, epoch, ok := h.s.Backend().Primary(); ok && m.ID != h.s.Self() {
			asked := time.Now()
			resp, end, moved := h.openAnswer(r, m, epoch)
			if resp != nil {
				defer end()
				h.copyAnswer(w, r, resp)
				return true
			}
			if moved {
				over = over.Add(time.Since(asked)) // the new primary gets as much time as at once
			}
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return false
		}
	}
	return false
}

// openAnswer asks a server for an answer, which the caller reads until it calls end. Resp is nil
// where another attempt may succeed: the server refused, it sent nothing for answerWait, or another
// one is primary now (moved).
func (h *Handler) openAnswer(r *http.Request, m cluster.Member, epoch cluster.Epoch) (resp *http.Response, end func(), moved bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTPAddress()+r.URL.RequestURI(), nil)
	if err != nil {
		cancel(err)
		return nil, nil, false
	}
	for _, name := range []string{"Range", "If-Range", "If-None-Match", "If-Match"} {
		if v, ok := r.Header[name]; ok {
			ask.Header[name] = v
		}
	}
	ask.Header.Set(forwardedHeader, fmt.Sprint(h.s.Self()))
	h.passOn(ctx, ask)
	silent, heard := context.WithTimeout(ctx, answerWait)
	defer heard()
	stop := context.AfterFunc(silent, func() { cancel(context.Cause(silent)) })
	go h.cancelWhenMoved(silent, cancel, m.ID, epoch)
	resp, err = h.opt.Transport.RoundTrip(ask)
	stop()
	if err == nil && resp.StatusCode != http.StatusServiceUnavailable && ctx.Err() == nil {
		return resp, func() { resp.Body.Close(); cancel(nil) }, false
	}
	if err == nil {
		resp.Body.Close()
	}
	moved = errors.Is(context.Cause(ctx), errMoved)
	cancel(nil)
	return nil, nil, moved
}

// copyAnswer sends an answer on, piece by piece.
func (h *Handler) copyAnswer(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	maps.Copy(w.Header(), resp.Header)
	for name := range resp.Trailer {
		w.Header().Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	control := http.NewResponseController(w)
	_ = control.Flush() // a follow may have nothing to send for long
	b := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(b)
		_ = control.SetWriteDeadline(time.Now().Add(bodyWait))
		if n > 0 {
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			_ = control.Flush()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler) // a part must not look like the whole
		}
	}
	for name, v := range resp.Trailer {
		w.Header()[name] = v
	}
}
