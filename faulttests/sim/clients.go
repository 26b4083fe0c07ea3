// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

const (
	// patience is how long a client waits for one answer before it asks the next term.
	patience = 500 * time.Millisecond
	// ttl is long enough that no lease ends in a scenario.
	ttl = 600 * time.Second
)

// Ack is one operation that was acknowledged to a client.
type Ack struct {
	Request locktable.Request
	Outcome locktable.Outcome
	Epoch   cluster.Epoch // that decided it
	// After is the highest LSN in any answer to any client when the request was first sent.
	After cluster.LSN
}

// Ledger collects the answers of clients, and those that they must never get.
type Ledger struct {
	mu      sync.Mutex
	acks    []Ack
	refused [][]byte            // append data that must never be in a file
	spoiled map[generation]bool // moved away before all of it was there
	bad     []string
	high    cluster.LSN // in any answer
	holds   []*hold
}

// hold is the time in which a client may believe that it holds a lock. Guarded by Ledger.mu.
type hold struct {
	lock       cluster.LockName
	token      cluster.Token
	heard, end time.Time
	shared     time.Time // from when on others may share the lock; zero = never
	permit     locktable.Permit
}

// shares notes that others may hold the lock too, from a moment on.
func (l *Ledger) shares(h *hold, from time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.shared = from
}

// together reports whether two grants may have been live at one time.
func (h *hold) together(next *hold) bool {
	return !h.shared.IsZero() && !next.shared.IsZero() && !next.heard.Before(h.shared)
}

// held notes a grant that a client has just heard of and may count on until end.
func (l *Ledger) held(lock cluster.LockName, token cluster.Token, end time.Time) *hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &hold{lock: lock, token: token, heard: time.Now(), end: end}
	l.holds = append(l.holds, h)
	return h
}

// renewed lets a client count on its grant until end.
func (l *Ledger) renewed(h *hold, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h != nil && end.After(h.end) {
		h.end = end
	}
}

// ends notes that a client no longer counts on its grant.
func (l *Ledger) ends(h *hold, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h != nil && now.Before(h.end) {
		h.end = now
	}
}

// Acks returns the acknowledged operations, in the order in which clients got their answers.
func (l *Ledger) Acks() []Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Ack(nil), l.acks...)
}

// Bad returns the violations that clients found in their answers.
func (l *Ledger) Bad() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.bad...)
}

func (l *Ledger) ack(a Ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
	l.high = max(l.high, a.Outcome.LSN)
}

// sharedTokens are those of grants that others may have had beside.
func (l *Ledger) sharedTokens() map[cluster.Token]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[cluster.Token]bool{}
	for _, h := range l.holds {
		if !h.shared.IsZero() {
			all[h.token] = true
		}
	}
	return all
}

// High returns the highest LSN in any answer so far.
func (l *Ledger) High() cluster.LSN {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high
}

// top returns the highest token of a lock in any answer.
func (l *Ledger) top(lock cluster.LockName) (top cluster.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.acks {
		if a := &l.acks[i]; a.Request.Op == locktable.OpAcquire && a.Request.Lock == lock {
			top = max(top, a.Outcome.Token)
		}
	}
	return top
}

func (l *Ledger) refuse(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, data)
}

func (l *Ledger) spoil(g generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spoiled == nil {
		l.spoiled = map[generation]bool{}
	}
	l.spoiled[g] = true
}

func (l *Ledger) violation(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = append(l.bad, fmt.Sprintf(format, args...))
}

// worker is one client: it works through rounds of acquire, appends, release,
// numbering its requests upwards and repeating each until it is acknowledged.
type worker struct {
	scenario *Scenario
	id       cluster.ClientID
	lock     cluster.LockName
	file     cluster.FileName
	next     cluster.RequestID
	tries    int
}

// run does n rounds of two appends.
func (w *worker) run(ctx context.Context, n int) {
	for round := range n {
		grant, ok := w.do(ctx, locktable.Request{Op: locktable.OpAcquire, Lock: w.lock, TTL: ttl, Wait: locktable.WaitForever})
		if !ok {
			return
		}
		for part := range 2 {
			data := fmt.Appendf(nil, "%s round %d part %d\n", w.id, round, part)
			if _, ok := w.do(ctx, locktable.Request{
				Op: locktable.OpAppend, Lock: w.lock, Token: grant.Token, File: w.file,
				Data: data, CRC: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)),
			}); !ok {
				return
			}
		}
		if _, ok := w.do(ctx, locktable.Request{Op: locktable.OpRelease, Lock: w.lock, Token: grant.Token}); !ok {
			return
		}
		w.scenario.progress.Add(1)
		time.Sleep(w.scenario.Pace)
	}
}

// do repeats one request at one term after the other until it is acknowledged.
func (w *worker) do(ctx context.Context, q locktable.Request) (locktable.Outcome, bool) {
	w.next++
	q.Client, q.ID, q.LowWater = w.id, w.next, w.next
	if w.scenario.Strangers {
		q.Identity = "user:" + string(w.id)
	}
	high := w.scenario.Ledger.High()
	for ctx.Err() == nil {
		p := w.scenario.pick(w.tries)
		w.tries++
		if p == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		out, err := ask(ctx, p, q)
		if err != nil {
			continue
		}
		switch out.Status {
		case cluster.StatusOK:
			w.scenario.Ledger.ack(Ack{Request: q, Outcome: out, Epoch: out.Epoch, After: high})
			w.scenario.verifyWritten(&q, out)
			if w.scenario.Strangers {
				w.strangers(ctx, p, &q, out.Token)
			}
			return out, true
		case cluster.StatusUnknown, cluster.StatusServerFencing, cluster.StatusSecondaryMode,
			cluster.StatusNoQuorum, cluster.StatusStorageUnavailable:
			time.Sleep(10 * time.Millisecond)
		default:
			w.scenario.Ledger.violation("%s/%d %v was refused: %v %s", q.Client, q.ID, q.Op, out.Status, out.Message)
			return out, false
		}
	}
	return locktable.Outcome{}, false
}

// verifyWritten checks, at the moment of the answer, that an append is in its
// file for everybody to see.
func (s *Scenario) verifyWritten(q *locktable.Request, out locktable.Outcome) {
	if q.Op != locktable.OpAppend || s.Outages {
		return
	}
	content, err := s.Disk.ReadFile(volume.ProtectedPath(q.File))
	end := out.Offset + out.Length
	if err != nil || int64(len(content)) < end || !bytes.Equal(content[out.Offset:end], q.Data) {
		s.Ledger.violation("I5: %s/%d was told of %d bytes at %d of %s, which are not there: %d bytes, %v",
			q.Client, q.ID, out.Length, out.Offset, q.File, len(content), err)
	}
}

func ask(ctx context.Context, p backend, q locktable.Request) (locktable.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.Do(ctx, &q)
}
