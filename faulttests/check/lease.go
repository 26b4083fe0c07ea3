// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// openGrant is a grant that the log has not ended yet.
type openGrant struct {
	lock cluster.LockName
	ttl  time.Duration
}

// leases compares the grants in the log with what their holders believed: no lease ends
// while its holder believes to have it, and none lasts long after its holder has stopped.
// Times are of one machine's clock; records without a time are not compared.
type leases struct {
	report *Report
	// believed has the time in which the holder of a token believed to hold the lock.
	believed map[cluster.Token]Hold
	// open are the believed grants that the log has not ended yet.
	open map[cluster.Token]openGrant
	// stuck is how much longer than its lease a grant may last; 0 = not checked.
	stuck time.Duration
	last  int64 // time of the last record
}

func newLeases(holds []Hold, stuck time.Duration, r *Report) *leases {
	x := &leases{report: r, believed: map[cluster.Token]Hold{}, open: map[cluster.Token]openGrant{}, stuck: stuck}
	for _, h := range holds {
		if old, ok := x.believed[h.Token]; !ok || h.Until.After(old.Until) {
			x.believed[h.Token] = h
		}
	}
	return x
}

// see takes the next record of the log.
func (x *leases) see(r *locktable.Record) {
	x.last = max(x.last, r.Time)
	switch r.Kind {
	case locktable.KindGrant:
		if _, ok := x.believed[r.LSN.Token()]; ok && r.Time != 0 {
			x.open[r.LSN.Token()] = openGrant{r.Lock, r.TTL}
		}
	case locktable.KindExtend:
		if g, ok := x.open[r.Token]; ok {
			g.ttl = r.TTL
			x.open[r.Token] = g
		}
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		x.end(r)
	case locktable.KindForceClear:
		clear(x.open)
	}
}

func (x *leases) end(r *locktable.Record) {
	g, ok := x.open[r.Token]
	if !ok {
		return
	}
	delete(x.open, r.Token)
	x.report.Checked(I2, 1)
	h := x.believed[r.Token]
	if early := h.Until.UnixMilli() - r.Time; r.Kind == locktable.KindExpire && early > leaseSlack {
		x.report.Violation(I2, "token %d of lock %s expired in the log %d ms before client %d stopped to count on it", r.Token, g.lock, early, h.Client)
	}
	x.judgeLate(g, h, r.Time)
}

// judgeLate checks that a grant ended within its lease after its holder stopped to use it.
func (x *leases) judgeLate(g openGrant, h Hold, ended int64) {
	if x.stuck == 0 {
		return
	}
	x.report.Checked(I15, 1)
	if late := time.Duration(ended-h.Until.UnixMilli()) * time.Millisecond; late > g.ttl+x.stuck {
		x.report.Violation(I15, "token %d of lock %s went on for %v after client %d had stopped to count on it, its lease is of %v",
			h.Token, g.lock, late.Round(time.Millisecond), h.Client, g.ttl)
	}
}

// atTheEnd judges the grants that are still live at the end of the log.
func (x *leases) atTheEnd() {
	for token, g := range x.open {
		x.judgeLate(g, x.believed[token], x.last)
	}
}
