// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// cells has the Clients of the cells of a site. Cells share nothing: a client has an identity, leases and connections of its own in each.
// So the Client that the user made has a whole Client for each other cell that it needs, and hands calls to it. In a cluster that is no
// cell nothing is asked for this, and nothing is kept.
//
// A call that names a lock or a file goes to the user's own cell first, until that has refused one. Where that has no primary, and for what
// has no name, or would be answered by a wrong cell, the servers are asked before.
type cells struct {
	own  *Client
	said atomic.Int32 // what servers said: not heard, alone or several
	// sought is when it was asked last where the servers of a cell are by now, on the client's clock; 0 = never.
	sought atomic.Int64
	// fixed is the site whose directory is the endpoint; nil where servers tell of the others.
	fixed *sitemap.Map

	site atomic.Pointer[sitemap.Map] // nil until it is known
	mu   struct {
		sync.Mutex
		id     CellID // of own, once the site is known
		of     map[CellID]*Client
		making map[CellID]*making
		closed bool
	}
}

const (
	unheard int32 = iota
	alone
	several
)

// heard notes whether a server has told of further cells.
func (s *cells) heard(more bool) {
	if more {
		s.said.Store(several)
	} else {
		s.said.CompareAndSwap(unheard, alone)
	}
}

// begin sets up the cells of the site in a directory, and returns the options of a client of one cell: of that whose volume the endpoint of o is,
// or of the first whose volume can be read, where it is the directory.
func (s *cells) begin(o Options, dir string) (Options, error) {
	site, err := sitemap.Read(os.DirFS(dir), dir)
	if err != nil {
		return o, err
	}
	named := filepath.Clean(o.Endpoints[0])
	all := slices.DeleteFunc(slices.Clone(site.Cells), func(c sitemap.Cell) bool {
		return len(c.Endpoints) == 0 || named != filepath.Clean(dir) && named != filepath.Clean(c.Endpoints[0])
	})
	c, err := firstRead(all)
	if c == nil { // without an error, the site does not have this volume
		return o, err
	}
	s.fixed, s.mu.id = site, c.Cell
	s.site.Store(site)
	s.said.Store(several)
	o.Endpoints = c.Endpoints
	return o, nil
}

// headStart is how long the volume of one cell is waited for before the next one is read as well.
const headStart = 500 * time.Millisecond

// firstRead returns the first cell whose volume can be read. One that hangs holds up the others no longer than a while.
func firstRead(all []sitemap.Cell) (*sitemap.Cell, error) {
	type result struct {
		cell *sitemap.Cell
		err  error
	}
	read := make(chan result, len(all))
	var errs []error
	for next := 0; len(errs) < len(all); {
		var wait <-chan time.Time
		if next < len(all) {
			c := &all[next]
			go func() {
				_, _, err := join.Resolve(c.Endpoints)
				read <- result{c, err}
			}()
			next++
			wait = time.After(headStart)
		}
		select {
		case r := <-read:
			if r.err == nil {
				return r.cell, nil
			}
			errs = append(errs, fmt.Errorf("%v: %w", r.cell.Cell, r.err))
		case <-wait:
		}
	}
	return nil, errors.Join(errs...)
}

// close closes the Clients of the other cells.
func (s *cells) close() {
	s.mu.Lock()
	s.mu.closed = true
	of := s.mu.of
	s.mu.of = nil
	s.mu.Unlock()
	var all []func() error
	for _, c := range of {
		all = append(all, c.Close)
	}
	_ = runParallel(all) // each returns nil
}

// known returns the site, and the Client of the cell that has a name; nil for what is not there yet.
func (s *cells) known(name string) (*sitemap.Map, *Client) {
	site := s.site.Load()
	if site == nil {
		return nil, nil
	}
	id := site.Division.Route(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == s.mu.id {
		return site, s.own
	}
	if c := s.mu.of[id]; c != nil && c.life.Err() == nil { // else its user has closed it
		return site, c
	}
	return site, nil
}

// site returns the site of which the cluster is a cell; nil if it is none, or if the Client is for one cell only.
func (c *Client) site(ctx context.Context, k *call) (*sitemap.Map, error) {
	if c.single {
		return nil, nil
	}
	if site := c.cells.site.Load(); site != nil {
		return site, nil
	}
	if c.cells.said.Load() == unheard {
		c.servers.locate(ctx) // which any call would do first
	}
	if c.cells.said.Load() == alone {
		return nil, nil
	}
	return c.cells.ask(ctx, k)
}

// ask asks a server about the site: any that answers, else the next primary.
func (s *cells) ask(ctx context.Context, k *call) (*sitemap.Map, error) {
	ctx, end, err := s.own.begin(ctx)
	if err != nil {
		return nil, k.fail(err)
	}
	defer end()
	r, err := s.own.status(ctx, k)
	if err != nil {
		r, err = do(ctx, s.own, &call{op: k.op, lock: k.lock}, func(ctx context.Context, stub pb.LockServiceClient) (*pb.StatusResponse, error) {
			return stub.Status(ctx, &pb.StatusRequest{})
		})
	}
	if err != nil {
		return nil, err
	}
	site, err := sitemap.Of(r, s.own.opt.Endpoints, s.own.opt.trust.Endpoints)
	if err != nil {
		return nil, k.fail(fmt.Errorf("find the cells of the site: %w", errors.Join(err, ctx.Err())))
	}
	s.heard(site != nil)
	if site == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.id = CellID(r.GetCell().GetCell())
	s.site.Store(site)
	return site, nil
}

// leaderless reports whether the servers of the user's own cell tell of further cells while none of them is primary: then none would refuse a name
// of another cell.
func (s *cells) leaderless(ctx context.Context) bool {
	if s.own.servers.primary() != nil || s.said.Load() == alone {
		return false
	}
	s.own.servers.locate(ctx) // which the call would do first
	return s.own.servers.primary() == nil && s.said.Load() == several
}

// client returns the Client to use for names of a cell. The site is known.
func (s *cells) client(ctx context.Context, k *call, id CellID) (*Client, error) {
	s.mu.Lock()
	own := s.mu.id
	s.mu.Unlock()
	if id == own {
		return s.own, nil
	}
	return s.only(ctx, k, id)
}

// only returns the Client of one cell, which it makes where there is none. Where the cell is served was asked long ago then, perhaps, and is
// asked again.
func (s *cells) only(ctx context.Context, k *call, id CellID) (*Client, error) {
	s.mu.Lock()
	c := s.mu.of[id]
	if c != nil && c.life.Err() != nil { // its user has closed it
		c = nil
		delete(s.mu.of, id)
	}
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	site := s.fixed
	if site == nil {
		var err error
		if site, err = s.ask(ctx, k); err != nil {
			return nil, err
		}
	}
	var at sitemap.Cell
	if site != nil {
		at = site.Cell(id)
	}
	if at.Unusable != nil {
		return nil, k.fail(fmt.Errorf("%v of the site, as the servers at %v tell of it: %w", id, s.own.servers.addresses(), at.Unusable))
	}
	if len(at.Endpoints) == 0 {
		return nil, k.fail(fmt.Errorf("%v of the site is not known to the servers at %v: see holdfast site status", id, s.own.servers.addresses()))
	}
	m := s.make(id, at)
	select {
	case <-m.done:
		if m.err != nil {
			return nil, k.fail(fmt.Errorf("%v: %w", id, m.err))
		}
		return m.c, nil
	case <-s.own.life.Done():
		return nil, k.fail(ErrClosed)
	case <-time.After(s.own.opt.Budget):
		return nil, k.fail(fmt.Errorf("%v: its volume has not said within %v where its servers are: is the server of its filesystem up?", id, s.own.opt.Budget))
	case <-ctx.Done():
		return nil, k.fail(fmt.Errorf("%v: find its servers: %w", id, ended(ctx)))
	}
}

// making is a Client that is being made, which is there, or why it is not, when done is closed.
type making struct {
	began time.Time
	done  chan struct{}
	c     *Client
	err   error
}

// readAgain is after how long a volume that hangs is read beside that: it may have been mounted anew, and then that read never ends.
const readAgain = 5 * time.Minute

// make makes the Client of a cell, beside whoever waits for it: for the path of a volume that is read, and one that hangs has few goroutines.
func (s *cells) make(id CellID, at sitemap.Cell) *making {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mu.making[id]; m != nil && time.Since(m.began) < readAgain {
		return m
	}
	m := &making{began: time.Now(), done: make(chan struct{})}
	if s.mu.making == nil {
		s.mu.making = map[CellID]*making{}
	}
	s.mu.making[id] = m
	o := s.own.given
	o.Endpoints = at.Endpoints
	go func() {
		defer close(m.done)
		if m.c, m.err = newClient(o, true); m.err == nil {
			if at.ClusterID != "" {
				m.c.servers.known.Check(at.ClusterID)
			}
			m.c, m.err = s.add(id, m.c)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.making[id] == m {
			delete(s.mu.making, id)
		}
	}()
	return m
}

// refresh asks, now and then and in the background, where the servers of another cell are by now that has no primary: all of those which its Client
// knows may have been replaced while that had nothing to do there.
func (s *cells) refresh(ctx context.Context, at *Client) {
	if s.fixed != nil || at.servers.primary() != nil {
		return
	}
	now, last := int64(s.own.opt.Clock.Now()), s.sought.Load()
	if last != 0 && now-last < int64(learnEvery) || !s.sought.CompareAndSwap(last, now) {
		return
	}
	go func() { // ask is a call, so Close waits for it
		site, err := s.ask(context.WithoutCancel(ctx), &call{op: "find cells"})
		if err != nil || site == nil {
			return
		}
		s.mu.Lock()
		of := maps.Clone(s.mu.of)
		s.mu.Unlock()
		for id, c := range of {
			if addresses, _, err := join.Resolve(site.Cell(id).Endpoints); err == nil {
				c.servers.learn(addresses)
			}
		}
	}()
}

// add adds the Client of a cell, unless there is one by now.
func (s *cells) add(id CellID, c *Client) (*Client, error) {
	s.mu.Lock()
	there, closed := s.mu.of[id], s.mu.closed
	if there == nil && !closed {
		if s.mu.of == nil {
			s.mu.of = map[CellID]*Client{}
		}
		s.mu.of[id], there = c, c
	}
	s.mu.Unlock()
	if there != c {
		c.Close() //nolint:errcheck // it is nil
	}
	if closed {
		return nil, ErrClosed
	}
	return there, nil
}

// Cells returns the cells of the site of which this cluster is one, in order; none if it is a cluster by itself.
func (c *Client) Cells(ctx context.Context) ([]CellID, error) {
	site, err := c.site(ctx, &call{op: "cells"})
	if err != nil || site == nil {
		return nil, err
	}
	var all []CellID
	for _, x := range site.Cells {
		all = append(all, x.Cell)
	}
	return all, nil
}

// Cell returns a Client of one cell of the site. It has what cannot be had of several cells at once: a watch of all locks, the history of all,
// the status, a handover, the outcome of a request of a chosen name. It refuses locks of other cells, with ErrWrongCell. It is this Client's: Close closes
// both.
func (c *Client) Cell(ctx context.Context, id CellID) (*Client, error) {
	k := &call{op: "cell"}
	site, err := c.site(ctx, k)
	if err != nil {
		return nil, err
	}
	if site == nil || !slices.ContainsFunc(site.Cells, func(x sitemap.Cell) bool { return x.Cell == id }) {
		return nil, k.fail(wire.Invalid(fmt.Sprintf("there is no %v", id)))
	}
	return c.cells.only(ctx, k, id)
}

// inCell calls f with the Client of the cell that has a name.
func inCell[R any](ctx context.Context, c *Client, k *call, name string, f func(*Client) (R, error)) (R, error) {
	var none R
	if c.single {
		return f(c)
	}
	site, at := c.cells.known(name)
	if site == nil && c.cells.leaderless(ctx) {
		if _, err := c.cells.ask(ctx, k); err == nil { // else the call itself says what is wrong
			site, at = c.cells.known(name)
		}
	}
	if site == nil {
		at = c
	}
	if site != nil && at != nil && at != c {
		c.cells.refresh(ctx, at)
	}
	for first := true; ; first = false {
		if at == nil {
			var err error
			if at, err = c.cells.client(ctx, k, site.Of(name).Cell); err != nil {
				return none, err
			}
		}
		r, err := f(at)
		if !first || site != nil || !errors.Is(err, ErrWrongCell) || errors.Is(err, ErrUnknown) {
			return r, err
		}
		var lost error
		if site, lost = c.cells.ask(ctx, k); lost != nil || site == nil {
			return r, errors.Join(err, lost)
		}
		if _, at = c.cells.known(name); at == c {
			return r, err
		}
	}
}

// where returns the Client of the cell that has a lock, or all names with a prefix. It asks before, because any cell would answer.
func (c *Client) where(ctx context.Context, k *call, lock LockName, prefix string) (*Client, error) {
	site, err := c.site(ctx, k)
	if err != nil || site == nil {
		return c, err
	}
	all := []CellID{site.Division.Route(string(lock))}
	if lock == "" {
		all = site.Division.Under(prefix)
	}
	if len(all) > 1 {
		return nil, k.fail(wire.Invalid(fmt.Sprintf("locks with the prefix %q are in %d cells of the site, whose records have no common order: use the Client of each cell, or a prefix of one", prefix, len(all))))
	}
	return c.cells.client(ctx, k, all[0])
}

// everywhere yields what f yields for each cell that can have names with a prefix, in the order of the names. What a cell does not tell is missing, and
// its error comes last.
func everywhere[T any](ctx context.Context, c *Client, k *call, prefix string, nameOf func(T) string, f func(*Client) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		site, err := c.site(ctx, k)
		if err != nil {
			yield(none, err)
			return
		}
		if site == nil {
			f(c)(yield)
			return
		}
		var errs []error
		var all []iter.Seq2[T, error]
		for _, id := range site.Division.Under(prefix) {
			at, err := c.cells.client(ctx, k, id)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, f(at))
		}
		more, err := inOrder(all, nameOf, yield)
		if errs = append(errs, err); more && errors.Join(errs...) != nil {
			yield(none, errors.Join(errs...))
		}
	}
}

// inOrder yields what several ordered sequences have, in order. It returns the errors with which some ended, and false if the caller has left.
func inOrder[T any](all []iter.Seq2[T, error], nameOf func(T) string, yield func(T, error) bool) (more bool, err error) {
	type head struct {
		item T
		next func() (T, error, bool)
	}
	var heads []*head
	var errs []error
	pull := func(h *head) (ok bool) {
		var err error
		if h.item, err, ok = h.next(); ok && err != nil {
			errs, ok = append(errs, err), false
		}
		return ok
	}
	for _, seq := range all {
		next, stop := iter.Pull2(seq)
		defer stop()
		if h := (&head{next: next}); pull(h) {
			heads = append(heads, h)
		}
	}
	for len(heads) > 0 {
		least := slices.MinFunc(heads, func(a, b *head) int { return strings.Compare(nameOf(a.item), nameOf(b.item)) })
		if !yield(least.item, nil) {
			return false, nil
		}
		if !pull(least) {
			heads = slices.DeleteFunc(heads, func(h *head) bool { return h == least })
		}
	}
	return true, errors.Join(errs...)
}

// ofClient returns the Client of the cell that made a client ID.
func (c *Client) ofClient(ctx context.Context, k *call, id ClientID) (*Client, error) {
	site, err := c.site(ctx, k)
	if err != nil || site == nil {
		return c, err
	}
	_, mark := id.OpenedBy()
	if mark == 0 {
		return nil, k.fail(wire.Invalid(fmt.Sprintf("client %q has a name of its own choice, and each cell of the site may know it: use the Client of one cell", id)))
	}
	var errs []error
	made := func(clusterID string) bool {
		var id cluster.ID
		return id.UnmarshalText([]byte(clusterID)) == nil && cluster.MarkOf(id) == mark
	}
	for _, x := range site.Cells {
		if x.ClusterID != "" && !made(x.ClusterID) {
			continue
		}
		at, err := c.cells.client(ctx, k, x.Cell)
		if err != nil { // it may be the one, or another
			errs = append(errs, err)
			continue
		}
		if at.servers.known.ID() == "" {
			at.servers.locate(ctx)
		}
		if made(at.servers.known.ID()) {
			return at, nil
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return nil, k.fail(wire.Invalid(fmt.Sprintf("client %s was made by no cell that answers", id)))
}
