// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
)

// forwardedHeader names the server that forwarded a request; such a request goes no further.
const forwardedHeader = "Holdfast-Forwarded-By"

const (
	dialWait = 500 * time.Millisecond
	// answerWait is how long a primary may take for what needs no waiting.
	answerWait = 10 * time.Second
	// maxDoubts is how many attempts of something repeatable may have been executed, with
	// nobody knowing: beside the one that the end of a primary broke off there may be some on
	// connections to it that were kept.
	maxDoubts = 3
	// maxForwarded bounds an answer that is passed on, in bytes: all that one client holds.
	maxForwarded = 256 << 20
	// maxPath bounds the path of a forward with its query: the rest of the header fits beside it.
	maxPath = maxHTTPHeader / 2
)

// newTransport makes the connections to other servers: HTTP/1.1, kept.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialWait}).DialContext,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       idleWait / 2, // before the other side closes it
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
	}
}

// patience is how long a forward looks for a primary that takes it: long enough
// for a usual failover. The time in which a server had the request does not count.
func (h *HTTP) patience() time.Duration {
	t := h.s.b.Timing()
	return 4*t.Suspicion + t.FencingPeriod
}

// forward has the primary execute an operation, after this server's own answer,
// which stands if nobody does. Attempts that certainly did nothing are repeated;
// after one that may have been executed there are a few more, if the operation is repeatable.
// From then on only what speaks for all of them is an answer.
func (h *HTTP) forward(ctx context.Context, o *operation, own reply) (reply, error) {
	if x, wrong := h.wrong(o); wrong {
		return x, nil
	}
	over := time.Now().Add(h.patience())
	tick := time.NewTicker(h.s.b.Timing().Heartbeat)
	defer tick.Stop()
	doubts, said := 0, ", and there is no other yet"
	if own.status == cluster.StatusUnknown {
		doubts = 1
	}
	for {
		if m, epoch, ok := h.s.b.Primary(); ok {
			asked := time.Now()
			x, executed, err := h.attempt(ctx, o, m, epoch)
			if executed != certainlyNot || err == nil {
				// It was there, perhaps in the queue for hours: a failover that comes
				// now gets as much patience as one that came at once.
				over = over.Add(time.Since(asked))
			}
			switch {
			case ctx.Err() != nil:
				return reply{}, context.Cause(ctx)
			case executed == certainly && (doubts == 0 || o.settles(x)):
				return x, nil
			case executed == certainly:
				said = fmt.Sprintf(", and then the answer was %v", x.status)
			case executed == perhaps:
				h.opt.Log.Debug().Err(err).Uint32("to", uint32(m.ID)).Msg("forwarded, and not known what came of it")
				if doubts++; doubts > maxDoubts || !o.repeatable {
					return o.unknown(fmt.Sprintf("server %d was asked, and its answer is lost", m.ID)), nil
				}
			case err == nil:
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

// wrong is the answer that a primary would certainly give, without its table, to an
// operation which must not be sent: what is too long for a header would be refused there by
// who speaks HTTP only, and what comes of that is not known.
func (h *HTTP) wrong(o *operation) (x reply, wrong bool) {
	q := o.request
	if q == nil {
		return x, false
	}
	status, message := q.Validate(h.s.b.Timing())
	if status == cluster.StatusOK && len(o.path) > maxPath {
		status, message = cluster.StatusInvalidArgument, fmt.Sprintf("the parameters take %d bytes, at most %d are allowed", len(o.path), maxPath)
	}
	if status == cluster.StatusOK {
		return x, false
	}
	return answerReply(convert.FromOutcome(&locktable.Outcome{Status: status, Message: message, Client: q.Client, Request: q.ID}), 0), true
}

// executed says what an attempt did.
type executed int

const (
	perhaps executed = iota
	certainly
	certainlyNot
)

// attempt asks one server, which may be this one by now.
func (h *HTTP) attempt(ctx context.Context, o *operation, m cluster.Member, epoch cluster.Epoch) (reply, executed, error) {
	var x reply
	var err error
	if m.ID == h.s.self {
		x, err = o.local(ctx)
	} else {
		x, err = h.ask(ctx, o, m, epoch)
	}
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return x, certainlyNot, err
		}
		return x, perhaps, err
	}
	switch {
	case x.status == cluster.StatusSecondaryMode, x.status == cluster.StatusServerFencing:
		return x, certainlyNot, nil
	case x.status == cluster.StatusUnknown && !x.committed:
		return x, perhaps, nil
	}
	return x, certainly, nil
}

// errMoved says that somebody else became primary while one was asked.
var errMoved = errors.New("another server is primary now")

// ask sends an operation to a server and gives it up when another one reigns: a
// paused primary would not answer for hours.
func (h *HTTP) ask(ctx context.Context, o *operation, m cluster.Member, epoch cluster.Epoch) (reply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.wait >= 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.wait+answerWait)
		defer stop()
	}
	go h.watch(ctx, cancel, m.ID, epoch)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.HTTP+o.path, bytes.NewReader(o.body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(forwardedHeader, fmt.Sprint(h.s.self))
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

// watch cancels a call to a server when another one, or a later reign, is heard
// of. It ends with ctx.
func (h *HTTP) watch(ctx context.Context, cancel context.CancelCauseFunc, id cluster.ServerID, epoch cluster.Epoch) {
	t := time.NewTicker(h.s.b.Timing().Suspicion)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if m, now, ok := h.s.b.Primary(); ok && (m.ID != id || now > epoch) {
			cancel(errMoved)
			return
		}
	}
}
