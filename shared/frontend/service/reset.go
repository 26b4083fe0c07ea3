// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A reset is the state at one LSN, and a watch goes on with exactly the events after
// it. A table may be too large to be read at once, so it is read in pages, each at
// an LSN of its own, while the hub collects what changes; applied to the pages, that
// makes the state at the LSN of the last one. Large tables are read one at a time.

const (
	// ResetPage is how many locks are read at once: few, for the core loop waits meanwhile.
	ResetPage = 256
	// resetTries bounds restarts of a reset that was interrupted.
	resetTries = 5
)

// page is a part of the table, in order of names, at one LSN.
type page struct {
	at    cluster.LSN
	local bool // a replica's
	locks []lockSnapshot
	// last is the last name that the page covers; "" = it covers all further ones.
	last cluster.LockName
}

// reset sends the state, and prepares the watch for the events after it.
func (x *watching) reset(ctx context.Context, reason string) (over bool, err error) {
	for range resetTries {
		pages, reading, end, err := x.collect(ctx)
		switch {
		case err != nil:
			return true, err
		case end == nil:
			return false, x.sendReset(pages, reading, reason)
		case !end.Gap:
			return true, x.end(0, end.Status, end.Message)
		}
		if end.Message != "" {
			reason = end.Message
		}
	}
	return true, x.end(0, cluster.StatusStorageUnavailable, "the table was replaced again and again while it was read")
}

// collect reads the state and leaves the watch positioned after it. An end that is a gap means
// that another try may succeed.
func (x *watching) collect(ctx context.Context) (pages []*page, reading serving.Reading, end *watch.End, err error) {
	x.close()
	if x.large {
		select {
		case x.s.large <- struct{}{}:
			defer func() { <-x.s.large }()
		case <-ctx.Done():
			return nil, reading, nil, context.Cause(ctx)
		}
	}
	o := x.o
	o.Resume = false
	if x.w, end = x.s.b.Hub().Watch(o); end != nil {
		return nil, reading, end, nil
	}
	pages, reading, err = x.pages(ctx)
	switch {
	case err != nil:
		return nil, reading, nil, err
	case reading.Status == cluster.StatusUnknown:
		// Of a read nothing is left in doubt. It can be had elsewhere.
		return nil, reading, &watch.End{Status: cluster.StatusSecondaryMode, Message: "the term ended while the table was read"}, nil
	case reading.Status != cluster.StatusOK:
		return nil, reading, &watch.End{Status: reading.Status, Message: "the table cannot be read here now"}, nil
	case reading.Local && reading.LSN < x.sent:
		// The table that came in place of events is older than those that the client knows.
		return nil, reading, &watch.End{Status: cluster.StatusSecondaryMode, Message: fmt.Sprintf("this replica is at LSN %d, and LSN %d was told", reading.LSN, x.sent)}, nil
	case pages == nil:
		return nil, reading, &watch.End{Gap: true}, nil
	}
	changed, ok := x.w.Settle(reading.LSN)
	if !ok {
		return nil, reading, x.w.Take().End, nil
	}
	if len(pages) > 1 && !settle(pages, changed) {
		return nil, reading, &watch.End{Gap: true}, nil
	}
	return pages, reading, nil, nil
}

// pages reads what is watched. The reading is that of the last page. A table that
// turns out to be large has to wait for its turn: there are no pages then.
func (x *watching) pages(ctx context.Context) (pages []*page, reading serving.Reading, err error) {
	if x.o.Lock != "" {
		p := &page{}
		reading, err = x.s.b.Read(ctx, func(v serving.View) {
			if l, ok := v.Table.Lock(x.o.Lock); ok {
				room := maxPage
				p.locks = append(p.locks, snapshotLock(v, l, &room))
			}
		})
		return []*page{p}, reading, err
	}
	for after := cluster.LockName(""); ; {
		locks, r, err := x.s.page(ctx, x.o.Prefix, after, ResetPage)
		if err != nil || r.Status != cluster.StatusOK {
			return nil, r, err
		}
		p := &page{at: r.LSN, local: r.Local, locks: locks}
		if len(locks) > ResetPage {
			if !x.large {
				x.large = true
				return nil, r, nil
			}
			after = locks[ResetPage-1].view.Name
			p.locks, p.last = locks[:ResetPage], after
		}
		if pages = append(pages, p); p.last == "" {
			return pages, r, nil
		}
	}
}

// settle brings pages from their LSNs to that of the last one, by what changed since the first.
// It returns false if everything changed at once, or something that was not read.
func settle(pages []*page, changed []*pb.Event) bool {
	of := map[*page]map[cluster.LockName][]*pb.Event{}
	for _, e := range changed {
		if e.GetKind() == pb.EventKind_EVENT_KIND_FORCE_CLEAR {
			return false
		}
		name := cluster.LockName(e.GetLock())
		i, _ := slices.BinarySearchFunc(pages, name, func(p *page, name cluster.LockName) int {
			if p.last == "" {
				return 1
			}
			return strings.Compare(string(p.last), string(name))
		})
		p := pages[i]
		if name == "" || cluster.LSN(e.GetLsn()) <= p.at {
			continue
		}
		if of[p] == nil {
			of[p] = map[cluster.LockName][]*pb.Event{}
		}
		of[p][name] = append(of[p][name], e)
	}
	for p, events := range of {
		if !p.settle(events) {
			return false
		}
	}
	return true
}

func (p *page) settle(events map[cluster.LockName][]*pb.Event) bool {
	for i := range p.locks {
		l := &p.locks[i]
		for _, e := range events[l.view.Name] {
			if !l.advance(e, p.local) {
				return false
			}
		}
		delete(events, l.view.Name)
	}
	for name, events := range events { // of locks that were not in the table
		l := lockSnapshot{view: locktable.LockView{Name: name, Grant: locktable.Grant{Lock: name}}, remaining: convert.RemainingUnknown}
		for _, e := range events {
			if !l.advance(e, p.local) {
				return false
			}
		}
		p.locks = append(p.locks, l)
	}
	p.locks = slices.DeleteFunc(p.locks, func(l lockSnapshot) bool {
		return l.view.Grant.Token == 0 && l.view.QueueLength == 0 && l.view.FileCount == 0
	})
	slices.SortFunc(p.locks, func(a, b lockSnapshot) int { return strings.Compare(string(a.view.Name), string(b.view.Name)) })
	return true
}

// advance applies an event to the view of its lock. It returns false if the result is not known.
func (l *lockSnapshot) advance(e *pb.Event, local bool) bool {
	v := &l.view
	switch locktable.Kind(e.GetKind()) {
	case locktable.KindGrant:
		if v.QueueLength > 0 { // a lock with a queue is granted to those in line
			v.QueueLength--
		}
		l.addHolder(e, local)
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		return l.removeHolder(cluster.Token(e.GetToken()))
	case locktable.KindDowngrade:
		v.Grant.Mode = locktable.ModeShared
	case locktable.KindMetadata, locktable.KindAsk, locktable.KindExtend:
		l.updateHolder(e, local)
	case locktable.KindEnqueue:
		v.QueueLength++
	case locktable.KindWaitTimeout, locktable.KindCancel, locktable.KindSkip:
		v.QueueLength--
	case locktable.KindBind:
		v.FileCount++
	case locktable.KindUnbind:
		v.FileCount--
	}
	return true
}

// addHolder adds a holder.
func (l *lockSnapshot) addHolder(e *pb.Event, local bool) {
	x := sharer{remaining: convert.RemainingUnknown, grant: locktable.Grant{
		Lock: l.view.Name, Token: cluster.Token(e.GetToken()), Epoch: cluster.Epoch(e.GetEpoch()),
		Client: cluster.ClientID(e.GetClientId()), Request: cluster.RequestID(e.GetRequestId()), TTL: time.Duration(e.GetTtlMs()) * time.Millisecond,
		Mode:   locktable.Mode(e.GetMode()),
		Permit: locktable.Permit{Limit: e.GetLimit(), Weight: e.GetWeight()},
		Holder: convert.ToHolder(e.GetHolder()),
		Since:  e.GetUnixMs(), Metadata: e.GetMetadata(), Identity: e.GetHolder().GetIdentity(),
	}}
	if !local {
		x.remaining, x.heard = x.grant.TTL, true
	}
	if l.view.Holders++; l.view.Holders > 1 {
		if len(l.others)+2 == l.view.Holders && len(l.others) < maxPage { // else older ones are not listed
			l.others = append(l.others, x)
		}
		return
	}
	l.view.Grant, l.remaining, l.heard = x.grant, x.remaining, x.heard
}

// updateHolder sets the metadata or the TTL of a holder, or its release request. A holder that is not listed
// is left out.
func (l *lockSnapshot) updateHolder(e *pb.Event, local bool) {
	g := &l.view.Grant
	if token := cluster.Token(e.GetToken()); token != g.Token {
		i := slices.IndexFunc(l.others, func(x sharer) bool { return x.grant.Token == token })
		if i < 0 {
			return
		}
		g = &l.others[i].grant
	}
	switch e.GetKind() {
	case pb.EventKind_EVENT_KIND_METADATA:
		g.Metadata = e.GetMetadata()
		return
	case pb.EventKind_EVENT_KIND_EXTEND:
		g.TTL = time.Duration(e.GetTtlMs()) * time.Millisecond
		return
	}
	grace := time.Duration(e.GetWaitMs()) * time.Millisecond
	g.Ask = &locktable.Ask{
		Lock: l.view.Name, Token: g.Token, LSN: cluster.LSN(e.GetLsn()), Grace: grace,
		Actor: e.GetActor(), Reason: e.GetReason(), Request: g.Request, Remaining: grace,
	}
	if local {
		g.Ask.Remaining = convert.RemainingUnknown
	}
}

// removeHolder takes a holder out. One that is not listed is only counted. It returns false if
// the holder that is shown next was not read.
func (l *lockSnapshot) removeHolder(token cluster.Token) bool {
	if l.view.Holders > 0 {
		l.view.Holders--
	}
	if token != l.view.Grant.Token {
		l.others = slices.DeleteFunc(l.others, func(x sharer) bool { return x.grant.Token == token })
		return true
	}
	l.view.Grant = locktable.Grant{Lock: l.view.Name}
	if len(l.others) > 0 {
		l.view.Grant, l.remaining, l.heard = l.others[0].grant, l.others[0].remaining, l.others[0].heard
		l.others = l.others[1:]
		return true
	}
	return l.view.Holders == 0
}

// sendReset sends the pages. The memory of each is free when it was sent.
func (x *watching) sendReset(pages []*page, reading serving.Reading, reason string) error {
	r := &pb.WatchResponse{Status: pb.Status_STATUS_OK, Epoch: uint64(reading.Epoch), Lsn: uint64(reading.LSN)}
	part, size := &pb.Reset{Reason: reason}, 0
	for i, p := range pages {
		pages[i] = nil
		for len(p.locks) > 0 || i == len(pages)-1 {
			for len(p.locks) > 0 && len(part.Locks) < maxMessageItems && size < MaxMessageBytes {
				l := p.locks[0].proto()
				countPermits(l)
				p.locks = p.locks[1:]
				size += trimHolders(l)
				part.Locks = append(part.Locks, l)
			}
			part.Last = i == len(pages)-1 && len(p.locks) == 0
			if len(part.Locks) < maxMessageItems && size < MaxMessageBytes && !part.Last {
				break // the next page has more
			}
			r.Reset_ = part
			if err := x.send(r); err != nil || part.Last {
				return err
			}
			part, size = &pb.Reset{Part: part.Part + 1, Reason: reason}, 0
			r = &pb.WatchResponse{Status: r.Status, Epoch: r.Epoch, Lsn: r.Lsn}
		}
	}
	return nil
}

// countPermits counts the permits that the holders have, if all are listed: the events that came since the lock was read do not tell
// those of the others.
func countPermits(l *pb.Lock) {
	if l.Limit, l.PermitsTaken = l.Grant.GetLimit(), 0; l.Limit == 0 || int(l.Holders) > 1+len(l.SharedHolders) {
		return
	}
	l.PermitsTaken = l.Grant.GetWeight()
	for _, g := range l.SharedHolders {
		l.PermitsTaken += g.GetWeight()
	}
}

// trimHolders leaves out the youngest holders of a lock if they are too many for one message, and
// returns the size of the lock then. The number of its holders stays.
func trimHolders(l *pb.Lock) (size int) {
	size = proto.Size(l)
	for n := len(l.SharedHolders); size > MaxMessageBytes && n > 0; n-- {
		size -= proto.Size(l.SharedHolders[n-1])
		l.SharedHolders = l.SharedHolders[:n-1]
	}
	return size
}
