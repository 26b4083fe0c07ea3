// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

// memoryFill is how many times the duration servers work before their memory is looked at: their heaps
// must have been collected, and what they keep of the log must be full.
const memoryFill = 2

// memoryCost is what something costs own servers: their memory without it and with it, both times after
// the same work.
type memoryCost struct {
	*Env
	primary         clientlib.ServerID // 0 = nothing was looked at
	resident, heaps [2][]int64
}

// look makes the servers work on keys of their own, so that their heaps are collected, and then looks at
// their memory: at is 0 without what is measured, 1 with it.
func (m *memoryCost) look(ctx context.Context, t *Holdfast, workers, at int) (err error) {
	if m.Servers == nil {
		return nil
	}
	if m.primary, err = m.Servers.AwaitHealthy(ctx); err != nil {
		return err
	}
	l := bench.Pairs(t, bench.Alone, prefix("memory"), workers)
	l.Name, l.Duration = "pairs, for the memory", memoryFill*m.Duration
	if _, err := l.Run(ctx, m.Say); err != nil {
		return err
	}
	for i, pid := range m.pids() {
		rss, err := bench.ResidentBytes(pid)
		if err != nil {
			return err
		}
		r, err := m.Servers.Runtime(clientlib.ServerID(i + 1))
		if err != nil {
			return err
		}
		m.resident[at], m.heaps[at] = append(m.resident[at], rss), append(m.heaps[at], r.LiveBytes)
	}
	return nil
}

// figures are the cost of one of n that each server has.
func (m *memoryCost) figures(what string, n float64) (all []bench.Figure) {
	if m.primary == 0 {
		return nil
	}
	each := n * 1024
	for i := range m.pids() {
		name := serverName(i, m.primary)
		all = append(all,
			bench.Figure{Name: "resident memory per " + what + ", " + name, Value: float64(m.resident[1][i]-m.resident[0][i]) / each, Unit: "KiB"},
			bench.Figure{Name: "live heap and stacks per " + what + ", " + name, Value: float64(m.heaps[1][i]-m.heaps[0][i]) / each, Unit: "KiB"},
		)
	}
	return all
}
