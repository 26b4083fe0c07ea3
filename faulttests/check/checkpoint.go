// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// The names of checkpoints and of their files, which are those of the views too.
const (
	checkpointPrefix = "checkpoint-"
	viewName         = "lock_state.json"
	requestsName     = "processed_requests.log"
)

// checkpoint is the directory of one checkpoint, with the epoch and LSN from its name.
type checkpoint struct {
	lsn  cluster.LSN
	path string
}

// checkpointState is the content of lock_state.json, decoded as generic JSON.
type checkpointState struct {
	LSN      cluster.LSN        `json:"lsn"`
	Chain    locktable.Hex      `json:"chain"`
	Entities []locktable.Entity `json:"entities"`
}

// findCheckpoints lists those of terms that started, ascending.
func findCheckpoints(terms []*term) (all []checkpoint, err error) {
	for _, r := range terms {
		entries, err := os.ReadDir(r.path)
		if err != nil {
			return nil, err
		}
		for _, x := range entries {
			digits, is := strings.CutPrefix(x.Name(), checkpointPrefix)
			if lsn, err := strconv.ParseUint(digits, 10, 64); is && err == nil && r.started {
				all = append(all, checkpoint{cluster.LSN(lsn), filepath.Join(r.path, x.Name())})
			}
		}
	}
	slices.SortFunc(all, func(a, b checkpoint) int { return cmp.Compare(a.lsn, b.lsn) })
	return all, nil
}

// compare compares a checkpoint with the state that the log produces up to its LSN.
func (p checkpoint) compare(x *reference, at wal.Position) error {
	b, err := os.ReadFile(filepath.Join(p.path, viewName))
	if err != nil {
		return err
	}
	requests, err := os.ReadFile(filepath.Join(p.path, requestsName))
	if err != nil {
		return err
	}
	var state checkpointState
	if err := json.Unmarshal(b, &state); err != nil {
		return err
	}
	if state.LSN != at.LSN || wal.Chain(state.Chain) != at.Chain {
		return fmt.Errorf("it is of LSN %d with chain value %#x, the log is at %d with %#x", state.LSN, uint64(state.Chain), at.LSN, uint64(at.Chain))
	}
	locks, files, marks := map[cluster.LockName][]*locktable.LockState{}, 0, 0
	for _, e := range state.Entities {
		switch {
		case e.Lock != nil && (e.Lock.Grant != nil || len(e.Lock.Waiters) > 0):
			locks[e.Lock.Name] = append(locks[e.Lock.Name], e.Lock)
		case e.File != nil:
			files++
			err = errors.Join(err, x.compareFile(e.File))
		case e.Mark != nil:
			marks++
			if last, marked := x.marks[e.Mark.Lock]; !marked || last != e.Mark.Last || x.slots[e.Mark.Lock] != e.Mark.Slot {
				err = errors.Join(err, fmt.Errorf("lock %s was granted under token %d last, the log makes that %d (remembered: %t)", e.Mark.Lock, e.Mark.Last, last, marked))
			}
		}
	}
	for name, parts := range locks {
		err = errors.Join(err, x.compareLock(name, parts))
	}
	if len(locks) != len(x.locks) || files != len(x.files) || marks != len(x.marks) {
		err = errors.Join(err, fmt.Errorf("%d locks in use, %d files and %d marks, the log makes %d, %d and %d", len(locks), files, marks, len(x.locks), len(x.files), len(x.marks)))
	}
	return errors.Join(err, x.compareReceipts(requests))
}

// compareLock puts the parts of a lock together: each holder is one, and a long queue is several.
func (x *reference) compareLock(name cluster.LockName, parts []*locktable.LockState) error {
	l := x.locks[name]
	if l == nil {
		l = &refLock{}
	}
	type hold struct {
		token  cluster.Token
		shared bool
		permit locktable.Permit
	}
	type place struct {
		request
		shared bool
		permit locktable.Permit
	}
	var holds, wantHolds []hold
	var waiters []locktable.WaiterState
	for _, s := range parts {
		if g := s.Grant; g != nil {
			holds = append(holds, hold{g.Token, g.Mode == locktable.ModeShared, permitOf(g.Permit)})
		}
		waiters = append(waiters, s.Waiters...)
	}
	slices.SortFunc(holds, func(a, b hold) int { return cmp.Compare(a.token, b.token) })
	slices.SortFunc(waiters, func(a, b locktable.WaiterState) int { return cmp.Compare(a.LSN, b.LSN) })
	var queue, wantQueue []place
	for _, w := range waiters {
		queue = append(queue, place{request{w.ClientID, w.RequestID}, w.Mode == locktable.ModeShared, permitOf(w.Permit)})
	}
	for _, h := range l.holds {
		wantHolds = append(wantHolds, hold{h.token, h.shared, locktable.Permit{Limit: h.limit, Weight: h.weight}})
	}
	for _, p := range l.queue {
		wantQueue = append(wantQueue, place{p.request, p.shared, locktable.Permit{Limit: p.limit, Weight: p.weight}})
	}
	if !slices.Equal(holds, wantHolds) || !slices.Equal(queue, wantQueue) {
		return fmt.Errorf("lock %s has holders %+v and waiters %+v, the log makes %+v and %+v", name, holds, queue, wantHolds, wantQueue)
	}
	return nil
}

// permitOf returns what stands in a checkpoint, the zero value if nothing does.
func permitOf(p *locktable.Permit) locktable.Permit {
	if p == nil {
		return locktable.Permit{}
	}
	return *p
}

func (x *reference) compareFile(s *locktable.FileEntity) error {
	f := x.files[s.Name]
	if f == nil {
		return fmt.Errorf("file %s is not bound in the log", s.Name)
	}
	if f.lock != s.Lock || f.generation != s.Generation || f.end != s.End || f.inode != s.Inode || f.stopped != s.Quarantined {
		return fmt.Errorf("file %s is %+v, the log makes lock %s, generation %d, end %d, inode %d, quarantined %t", s.Name, *s, f.lock, f.generation, f.end, f.inode, f.stopped)
	}
	return nil
}

// compareReceipts checks that each receipt is that of the record that executed its
// request. The service may choose which receipts it keeps.
func (x *reference) compareReceipts(lines []byte) (err error) {
	for line := range bytes.Lines(lines) {
		var e locktable.Entity
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		s := e.Receipt
		if s == nil || s.ClientID.Anonymous() {
			continue
		}
		c := x.clients[s.ClientID]
		if c == nil || c.done[s.RequestID] != s.LSN {
			err = errors.Join(err, fmt.Errorf("the receipt of request %d of client %s is of LSN %d, which is not in the log as that", s.RequestID, s.ClientID, s.LSN))
		}
	}
	return err
}

// checkpoint compares one and reports.
func (c *logCheck) checkpoint(p checkpoint, at wal.Position) {
	err := p.compare(c.reference, at)
	if errors.Is(err, fs.ErrNotExist) {
		return // it was removed while it was being archived
	}
	c.compared++
	c.report.Checked(I13, 1)
	if err != nil {
		c.report.Violation(I13, "%s: %v", p.path, err)
	}
}
