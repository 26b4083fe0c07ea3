// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"math"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// quotaRules returns rules whose quotas have a primary count all that it can, and refuse nothing.
func quotaRules() func() *access.Rules {
	most := int64(math.MaxInt64)
	f := &access.File{Quotas: []access.Quota{{Who: []string{"anonymous"}, Limits: map[string]any{"locks": most}}}}
	for c := 'a'; c <= 'z'; c++ {
		f.Quotas = append(f.Quotas, access.Quota{Prefix: string(c), Limits: map[string]any{"locks": most, "waiters": most, "file_bytes": most}})
	}
	r, err := access.Compile(f, 1)
	if err != nil {
		panic(fmt.Sprintf("the quotas of the simulation: %v", err))
	}
	return func() *access.Rules { return r }
}

// reader is who may serve, and so may count.
type reader func(context.Context, func(serving.View)) (cluster.Status, error)

// read reads from the term's primary.
func (r *Term) read(ctx context.Context, f func(serving.View)) (cluster.Status, error) {
	p := r.primary.Load()
	if p == nil {
		return cluster.StatusSecondaryMode, nil
	}
	out, err := p.Read(ctx, f)
	return out.Status, err
}

// read reads from a whole server.
func (x *server) read(ctx context.Context, f func(serving.View)) (cluster.Status, error) {
	r, err := x.node.Read(ctx, f)
	return r.Status, err
}

// checkQuotas has all who serve compare what they count for quotas with their tables. Whoever has done so is counted.
func (s *Scenario) checkQuotas() {
	s.mu.Lock()
	var all []reader
	for _, r := range s.terms {
		all = append(all, r.read)
	}
	for _, b := range s.backends {
		if x, ok := b.(*server); ok {
			all = append(all, x.read)
		}
	}
	s.mu.Unlock()
	for _, read := range all {
		result := make(chan error, 1) // after an error f may still run
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		status, err := read(ctx, func(v serving.View) {
			if v.Quotas != nil {
				result <- v.Quotas()
			}
		})
		cancel()
		if err != nil || status != cluster.StatusOK {
			continue
		}
		select {
		case drift := <-result:
			s.counted++
			if drift != nil {
				s.drifts = append(s.drifts, "quotas: "+drift.Error())
			}
		default: // a replica
		}
	}
}
