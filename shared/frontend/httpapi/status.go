// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// eachWait is how long another server may take to say how it is.
	eachWait = time.Second
	// maxEach bounds what it says, in bytes.
	maxEach = 1 << 20
	// eachAtOnce is how many callers have the others asked at a time: one question becomes several.
	eachAtOnce = 16
)

// status answers GET /v1/status. A server does not know what others see of the volume: with each, it asks them.
func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	q, each := &pb.StatusRequest{}, false
	if err := parameters(r, map[string]func(string) error{"local": yes(&q.Local), "each": yes(&each)}); err != nil {
		h.refuse(w, 0, err)
		return
	}
	x, err := h.s.Status(r.Context(), q)
	h.sendRead(w, r, x, err, func() any {
		b := wire.StatusBodyOf(x)
		// Who may read nothing is told nothing of this, and gets no server to ask others.
		if each && !q.Local && h.s.Stranger(serving.CallerOf(r.Context())) == nil {
			h.askEach(r.Context(), &b)
		}
		return b
	})
}

// askEach replaces what this server knows of the others by what they say of themselves, but for how this one sees them. One that does not answer
// in time stays as it is, and all do where many have them asked already.
func (h *Handler) askEach(ctx context.Context, b *wire.StatusBody) {
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eachWait)
	defer cancel()
	type told struct {
		i int
		s *wire.ServerBody
	}
	answers, asked := make(chan told), 0
	for _, x := range h.s.Backend().Status().Servers {
		for i := range b.Servers {
			if id := x.Member.ID; id != h.s.Self() && uint32(id) == b.Servers[i].ID {
				asked++
				go func() { answers <- told{i, h.askOne(ctx, x.Member)} }()
			}
		}
	}
	for range asked {
		a := <-answers
		if a.s == nil {
			continue
		}
		seen := &b.Servers[a.i]
		a.s.Reachable, a.s.HeardAgo, a.s.Conflict, a.s.Unwaited = seen.Reachable, seen.HeardAgo, seen.Conflict || a.s.Conflict, seen.Unwaited
		a.s.Joining, a.s.Joins = seen.Joining, seen.Joins
		a.s.FeatureLevel = cmp.Or(a.s.FeatureLevel, seen.FeatureLevel)
		*seen = *a.s
	}
}

// askOne returns what a server says of itself, nil if it does not, or if another cluster's answers there.
func (h *Handler) askOne(ctx context.Context, m cluster.Member) *wire.ServerBody {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTPAddress()+"/v1/status?local=true", nil)
	if err != nil {
		return nil
	}
	r.Header.Set(forwardedHeader, fmt.Sprint(h.s.Self()))
	h.passOn(ctx, r)
	resp, err := h.opt.Transport.RoundTrip(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var b wire.StatusBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxEach)).Decode(&b); err != nil || b.ClusterID != h.s.Cluster() {
		return nil
	}
	for i := range b.Servers {
		if b.Servers[i].ID == uint32(m.ID) {
			return &b.Servers[i]
		}
	}
	return nil
}
