// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"time"

	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// callTrace is the trace of a call, of which the term keeps when it was put: call.at moves on when a wait in a lock's queue ends.
type callTrace struct {
	serving.Trace
	put time.Duration // since the term began
}

// reportTrace reports where the time of a traced call went that is answered at this age of the term.
func (p *Primary) reportTrace(x *call, status cluster.Status, at time.Duration) {
	// The durations are exact. Where they lie in the time of day is as that is now: a term may be older than the last
	// correction of this machine's clock.
	now, age := time.Now(), p.age()
	moment := func(d time.Duration) time.Time { return now.Add(d - age) }
	s := serving.Stages{
		Op: x.op().String(), Status: status, Epoch: p.Epoch(),
		Put: moment(x.trace.put), Ready: moment(x.at), Answered: moment(at), Writes: x.writes(),
	}
	if x.req != nil {
		s.Lock, s.File = x.req.Lock, x.req.File
	}
	if t := x.times; t.checked > 0 {
		s.Commit, s.Synced, s.Checked = moment(t.began), moment(t.synced), moment(t.checked)
	}
	p.opt.Meter.Exemplify(x.op(), meter.Exemplar{Trace: x.trace.ID(), Seconds: (at - x.at).Seconds(), At: now})
	x.trace.Report(s)
}
