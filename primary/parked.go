// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

const (
	// parkedCalls bound what waits for the word on one file, parkedBytes what waits for all.
	// The word mostly comes within milliseconds, and a file that hangs fails soon.
	parkedCalls = 8192
	parkedBytes = 128 << 20
)

// parked are the calls that wait for the word of a file's writer, in order of arrival.
type parked struct {
	calls []*call
	first map[waitKey]*call // of each request
	times map[waitKey]int   // that a request is among calls, where it was repeated
	bytes int               // of data, which repeats share
}

// add keeps a call, or says why not. All is what is parked of data at all files.
func (p *parked) add(x *call, all *int) (refused string) {
	q := x.req
	key := waitKey{q.Client, q.ID}
	first := p.first[key]
	shared := first != nil && bytes.Equal(first.req.Data, q.Data)
	switch {
	case first != nil && p.times[key]+1 >= maxJoined:
		return "it was asked for again, too often to answer each"
	case len(p.calls) >= parkedCalls, !shared && *all+len(q.Data) > parkedBytes:
		return fmt.Sprintf("too much waits already until protected file %s has been looked at: ask again", q.File)
	}
	if p.first == nil {
		p.first, p.times = map[waitKey]*call{}, map[waitKey]int{}
	}
	switch {
	case !shared:
		p.bytes += len(q.Data)
		*all += len(q.Data)
	case len(q.Data) > 0 && &first.req.Data[0] != &q.Data[0]:
		q.Data = first.req.Data
	}
	if first == nil {
		p.first[key] = x
	} else {
		p.times[key]++
	}
	p.calls = append(p.calls, x)
	return ""
}

// dropAbandoned takes out the calls that nobody waits for any more.
func (p *parked) dropAbandoned(all *int) (dropped []*call) {
	gone := func(x *call) bool { return x.abandoned.Load() }
	if !slices.ContainsFunc(p.calls, gone) {
		return nil
	}
	calls := p.take(all)
	for _, x := range calls {
		if gone(x) || p.add(x, all) != "" {
			dropped = append(dropped, x)
		}
	}
	return dropped
}

// take takes all of them out.
func (p *parked) take(all *int) []*call {
	calls := p.calls
	*all -= p.bytes
	*p = parked{}
	return calls
}

// resume has what is parked at a slot looked at again.
func (c *core) resume(s *slot) {
	c.resumed = append(c.resumed, s.parked.take(&c.parkedBytes)...)
}

// watchFiles looks after the files that hang or fail: what waits for them is told.
func (c *core) watchFiles() {
	now := time.Now()
	for _, s := range c.slots { // any order: it changes no record
		s.writer.watch(now)
		s.writer.tellLate(now)
		if s.verifying && s.writer.failing.Load() != nil {
			c.resume(s) // and refused, unless it was seen
			continue
		}
		for _, x := range s.parked.dropAbandoned(&c.parkedBytes) {
			c.answer(x, locktable.Outcome{Status: cluster.StatusStorageUnavailable, Message: "nobody waited for it any more", Client: x.req.Client, Request: x.req.ID})
		}
	}
}
