// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// Verify begins one more term on disk and compares its state with the answers that
// clients got. It returns every violation. The numbers in them are those of the invariants
// of package check.
func (s *Scenario) Verify(disk *volumetest.Disk) []string {
	bad := append(s.Ledger.Bad(), s.verifyTerms()...)
	bad = append(bad, s.witness.Bad()...)
	bad = append(bad, s.drifts...)
	bad = append(bad, s.verifyOrder()...)
	bad = append(bad, s.verifyHolds()...)
	bad = append(bad, s.verifySeals()...)
	bad = append(bad, s.verifyIndex(disk)...)
	bad = append(bad, s.verifyVolume(disk)...)
	bad = append(bad, s.verifyReplay(disk)...)
	bad = append(bad, verifyViews(disk)...)
	judge := &Scenario{Disk: disk, Profile: s.Profile, Log: s.Log, Random: s.Random}
	r := judge.begin(s.reader(disk), nil, &s.book)
	defer r.Kill()
	if !r.Serving() {
		<-r.done
		return append(bad, fmt.Sprintf("I3: no term can begin on what is left: %v", r.err))
	}
	p := r.primary.Load()
	var files map[cluster.FileName]locktable.FileState
	out, err := p.Read(context.Background(), func(v serving.View) {
		bad = append(bad, s.verifyTable(v.Table)...)
		bad = append(bad, s.verifyLevel(v.Table)...)
		bad = append(bad, s.verifyCell(v.Table)...)
		files = map[cluster.FileName]locktable.FileState{}
		for name, f := range v.Table.Files() {
			files[name] = f
		}
	})
	if err != nil || out.Status != cluster.StatusOK {
		return append(bad, fmt.Sprintf("I15: the last term does not answer: %v %v", out.Status, err))
	}
	// A checkpoint's sync makes the redo of the takeover complete.
	p.SyncFiles(context.Background())
	bad = append(bad, s.verifyLists(p)...)
	bad = append(bad, s.verifyHistory(p, disk)...)
	return append(bad, s.verifyFiles(disk, files)...)
}

// verifyLevel checks that the feature level, once told, is that of the state, and that a cluster which began with it has no record of it.
func (s *Scenario) verifyLevel(t *locktable.Table) (bad []string) {
	switch n, _ := t.Level(); {
	case n != 0 && n != locktable.MaxLevel || n != 0 && !s.Older:
		bad = append(bad, fmt.Sprintf("I3: the table has feature level %d; made by an older binary: %v", n, s.Older))
	case n == 0 && s.Older && s.Raised.Load():
		bad = append(bad, "I3: it was told that the feature level is raised, and it is not")
	}
	return bad
}

// verifyLists repeats the changes of the list of servers that were answered: each happened once, and is answered as it was.
func (s *Scenario) verifyLists(p *primary.Primary) (bad []string) {
	list, _ := p.Members()
	versions := map[uint64]bool{}
	for _, told := range s.lists {
		out, err := p.Do(context.Background(), new(told.q))
		if err != nil || !out.Repeat || out.LSN != told.out.LSN || out.Version != told.out.Version {
			bad = append(bad, fmt.Sprintf("I7: a change of the list of servers was told %+v, and its repeat %+v, %v", told.out, out, err))
		}
		if versions[out.Version] || out.Version > list.Version {
			bad = append(bad, fmt.Sprintf("I3: version %d of the list of servers was told twice, or is gone: the log has version %d", out.Version, list.Version))
		}
		versions[out.Version] = true
	}
	return bad
}

// verifyTerms checks what the processes did: I8, the rule of the house, and
// that no two of them had one epoch (I9).
func (s *Scenario) verifyTerms() (bad []string) {
	for _, a := range s.audits {
		bad = append(bad, a.Bad()...)
	}
	epochs := map[cluster.Epoch]bool{}
	for _, r := range s.terms {
		bad = append(bad, r.audit.Bad()...)
		bad = append(bad, r.VerifyWrites()...)
		if p := r.primary.Load(); p != nil {
			if epochs[p.Epoch()] {
				bad = append(bad, fmt.Sprintf("I9: two processes had epoch %d", p.Epoch()))
			}
			epochs[p.Epoch()] = true
		}
	}
	return bad
}

// verifyReplay checks I13: the log, replayed from its base, gives the table that
// the last term had in memory. It burns an epoch and starts no term.
func (s *Scenario) verifyReplay(disk *volumetest.Disk) []string {
	if s.last == nil {
		return nil
	}
	warm, err := s.adopt(disk, s.last)
	if err != nil {
		return []string{fmt.Sprintf("I3: the log cannot be replayed: %v", err)}
	}
	cold, err := s.adopt(disk, nil)
	if err != nil {
		return []string{fmt.Sprintf("I3: the log cannot be replayed: %v", err)}
	}
	if !warm.Warm {
		return []string{fmt.Sprintf("I13: the log has another history than the table at LSN %d", s.last.At.LSN)}
	}
	if warm.End != cold.End || warm.Table.Hash() != cold.Table.Hash() {
		return []string{fmt.Sprintf("I13: replayed to LSN %d the table has hash %x, from memory at LSN %d it has %x",
			cold.End.LSN, cold.Table.Hash(), s.last.At.LSN, warm.Table.Hash())}
	}
	return nil
}

// adopt does the reading half of a takeover.
func (s *Scenario) adopt(disk *volumetest.Disk, warm *volume.WarmState) (a *volume.Adoption, err error) {
	ctx := context.Background()
	v, err := volume.Open(disk.Host(int(s.reader(disk)), s.Profile), volume.Options{Server: s.reader(disk), Random: s.Random, FirstSegment: firstSegment, Segment: segment})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	prepared, err := v.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	r, err := v.Claim(ctx, prepared)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Release()) }()
	src, err := r.FenceOlder(ctx)
	if err != nil {
		return nil, err
	}
	return r.Scan(ctx, src, warm)
}

// verifyViews checks I14: what people are shown is whole.
func verifyViews(disk *volumetest.Disk) (bad []string) {
	if b, err := disk.ReadFile("lock_state.json"); err == nil && !json.Valid(b) {
		bad = append(bad, fmt.Sprintf("I14: lock_state.json is no JSON: %.60q…", b))
	}
	return bad
}

// verifyVolume has fsck compare everything on the volume with everything else.
// Protected files are left to verifyFiles, which knows what was done to them from outside.
func (s *Scenario) verifyVolume(disk *volumetest.Disk) (bad []string) {
	r, err := fsck.Run(context.Background(), disk.Clone().Host(fsckHost, s.Profile), fsck.Options{})
	if err != nil {
		return []string{fmt.Sprintf("fsck: %v", err)}
	}
	for _, f := range r.Findings {
		if f.Severity == fsck.SeverityError && !strings.HasPrefix(f.Code, "file-") {
			bad = append(bad, fmt.Sprintf("fsck: %s: %s at %d: %s", f.Code, f.Path, f.Offset, f.Problem))
		}
	}
	return bad
}

// fsckHost is the host of fsck, which is no server's.
const fsckHost = 90

// verifyOrder checks what clients saw in the order they saw it: I1 tokens rise
// and nothing is done under one after the next was granted; I9 what is asked for after
// an answer comes after it in the log.
func (s *Scenario) verifyOrder() (bad []string) {
	acks, shared := s.Ledger.Acks(), s.Ledger.sharedTokens()
	last := map[cluster.LockName]cluster.Token{}
	tokens := map[cluster.LockName][]cluster.Token{}
	for _, a := range acks {
		if a.Outcome.LSN <= a.After {
			bad = append(bad, fmt.Sprintf("I9: %s/%d %v has LSN %d, but was first sent after LSN %d was acknowledged", a.Request.Client, a.Request.ID, a.Request.Op, a.Outcome.LSN, a.After))
		}
		if a.Request.Op != locktable.OpAcquire {
			continue
		}
		before := last[a.Request.Lock]
		if a.Outcome.Token <= before && !s.Lossy && !(shared[a.Outcome.Token] && shared[before]) {
			bad = append(bad, fmt.Sprintf("I1: token %d of %s after %d", a.Outcome.Token, a.Request.Lock, before))
		}
		last[a.Request.Lock] = max(before, a.Outcome.Token)
		tokens[a.Request.Lock] = append(tokens[a.Request.Lock], a.Outcome.Token)
	}
	for lock, all := range tokens {
		slices.Sort(all)
		if n := len(all); len(slices.Compact(all)) != n {
			bad = append(bad, fmt.Sprintf("I1: a token of %s was granted twice", lock))
		}
	}
	for _, a := range acks {
		if a.Request.Token == 0 {
			continue
		}
		for _, next := range tokens[a.Request.Lock] {
			if next > a.Request.Token && a.Outcome.LSN.Token() > next && !(shared[a.Request.Token] && shared[next]) {
				bad = append(bad, fmt.Sprintf("I1: %s/%d %v under token %d of %s has LSN %d, behind token %d", a.Request.Client, a.Request.ID, a.Request.Op, a.Request.Token, a.Request.Lock, a.Outcome.LSN, next))
				break
			}
		}
	}
	return bad
}

// verifyHolds checks I2: no client gets a grant while another, by its own
// clock and what it was told, may still count on the one before.
func (s *Scenario) verifyHolds() (bad []string) {
	if s.Breaks {
		return nil
	}
	s.Ledger.mu.Lock()
	defer s.Ledger.mu.Unlock()
	for _, a := range s.Ledger.holds {
		bad = append(bad, s.Ledger.verifyPermits(a)...)
		for _, b := range s.Ledger.holds {
			if a.lock == b.lock && a.token < b.token && b.heard.Before(a.end) && !a.together(b) {
				bad = append(bad, fmt.Sprintf("I2: token %d of %s was heard of %v before token %d could not be counted on any more",
					b.token, b.lock, a.end.Sub(b.heard), a.token))
			}
		}
	}
	return bad
}

// verifyPermits checks that when a grant was heard of, the older ones on which others could still count left as many permits as it has, of the
// same limit.
func (l *Ledger) verifyPermits(a *hold) []string {
	sum := uint64(0)
	for _, b := range l.holds {
		if b.lock != a.lock || b.token > a.token || !a.heard.Before(b.end) {
			continue
		}
		if b.permit.Limit != a.permit.Limit {
			return []string{fmt.Sprintf("I1: token %d of %s has %+v, beside token %d with %+v", a.token, a.lock, a.permit, b.token, b.permit)}
		}
		sum += uint64(b.permit.Weight)
	}
	if a.permit.Limit > 0 && sum > uint64(a.permit.Limit) {
		return []string{fmt.Sprintf("I2: %d of the %d permits of %s were taken when token %d was heard of", sum, a.permit.Limit, a.lock, a.token)}
	}
	return nil
}

// verifyTable: I3 every acknowledged operation is there, I7 with the same
// outcome, and the table's own invariants hold.
func (s *Scenario) verifyTable(t *locktable.Table) (bad []string) {
	if err := t.Check(); err != nil {
		bad = append(bad, fmt.Sprintf("Check: %v", err))
	}
	newest := map[cluster.ClientID]Ack{}
	for _, a := range s.Ledger.Acks() {
		newest[a.Request.Client] = a
	}
	for _, a := range newest { // a client's mark has forgotten those before
		state, out := t.Lookup(a.Request.Client, a.Request.ID)
		if c, _ := t.Client(a.Request.Client); state == locktable.RequestStale && c.LowWater > a.Request.ID {
			continue // its next request, not acknowledged yet, came through and forgot this one
		}
		if state != locktable.RequestExecuted {
			bad = append(bad, fmt.Sprintf("I3: %s/%d %v was acknowledged and is lost (%v)", a.Request.Client, a.Request.ID, a.Request.Op, state))
			continue
		}
		if out.LSN != a.Outcome.LSN || out.Token != a.Outcome.Token || out.Offset != a.Outcome.Offset {
			bad = append(bad, fmt.Sprintf("I7: %s/%d %v: was told %+v, now %+v", a.Request.Client, a.Request.ID, a.Request.Op, a.Outcome, out))
		}
	}
	return bad
}

// generation names one inode that carried a protected file.
type generation struct {
	file   cluster.FileName
	number cluster.Generation
}

// verifyFiles: I5 each file is its acknowledged appends, each once, in the
// order of the log, and at most unacknowledged ones besides, never a refused one; I6 tokens
// of appends never fall. A generation that was moved away is looked for under moved.
func (s *Scenario) verifyFiles(disk *volumetest.Disk, files map[cluster.FileName]locktable.FileState) (bad []string) {
	acked := map[generation][]Ack{}
	for _, a := range s.Ledger.Acks() {
		if a.Request.Op == locktable.OpAppend {
			g := generation{a.Request.File, a.Outcome.Generation}
			acked[g] = append(acked[g], a)
		}
	}
	all := disk.Files(volume.ProtectedPath("."))
	moved := disk.Files(volume.ProtectedPath(movedDir))
	for g, acks := range acked {
		if s.Ledger.spoiled[g] {
			continue
		}
		f, bound := files[g.file]
		content, there := all[volume.ProtectedPath(g.file)]
		if g.file == rotatedFile && (!bound || f.Generation != g.number || f.Quarantined) {
			bad = append(bad, verifyMoved(g, acks, content, moved)...)
			continue
		}
		if !there {
			bad = append(bad, fmt.Sprintf("I5: %s is not there", g.file))
			continue
		}
		if bound && (f.End != int64(len(content)) || f.Quarantined) {
			bad = append(bad, fmt.Sprintf("I5: %s has %d bytes, the table says %d, quarantined %v %s", g.file, len(content), f.End, f.Quarantined, f.Reason))
		}
		bad = append(bad, verifyFile(g.file, content, acks)...)
	}
	return append(bad, s.verifyRefused(all)...)
}

// verifyMoved checks that one of the files that were moved away, or the one that is
// still there, is this generation.
func verifyMoved(g generation, acks []Ack, content []byte, moved map[string][]byte) []string {
	least := verifyFile(g.file, content, acks)
	for _, other := range moved {
		if bad := verifyFile(g.file, other, acks); len(bad) < len(least) {
			least = bad
		}
	}
	for i := range least {
		least[i] = fmt.Sprintf("generation %d: %s", g.number, least[i])
	}
	return least
}

func (s *Scenario) verifyRefused(all map[string][]byte) (bad []string) {
	s.Ledger.mu.Lock()
	defer s.Ledger.mu.Unlock()
	for name, content := range all {
		for _, data := range s.Ledger.refused {
			if bytes.Contains(content, data) {
				bad = append(bad, fmt.Sprintf("I5: %s holds %.40q, which was refused", name, data))
			}
		}
	}
	return bad
}

func verifyFile(name cluster.FileName, content []byte, acks []Ack) (bad []string) {
	slices.SortFunc(acks, func(a, b Ack) int { return int(a.Outcome.Offset - b.Outcome.Offset) })
	if i := bytes.IndexByte(content, 0); i >= 0 {
		bad = append(bad, fmt.Sprintf("I5: %s has a zero byte at %d", name, i))
	}
	var token cluster.Token
	var end int64
	for _, a := range acks {
		o := a.Outcome
		if o.Offset < end || o.Offset+o.Length > int64(len(content)) {
			bad = append(bad, fmt.Sprintf("I5: %s: receipt of [%d:+%d] overlaps or lies outside of %d bytes", name, o.Offset, o.Length, len(content)))
			continue
		}
		if got := content[o.Offset : o.Offset+o.Length]; !bytes.Equal(got, a.Request.Data) {
			bad = append(bad, fmt.Sprintf("I5: %s at %d holds %.40q, the receipt says %.40q", name, o.Offset, got, a.Request.Data))
		}
		if n := bytes.Count(content, a.Request.Data); n != 1 {
			bad = append(bad, fmt.Sprintf("I5: %s holds %.40q %d times", name, a.Request.Data, n))
		}
		if o.Token < token {
			bad = append(bad, fmt.Sprintf("I6: %s: token %d at %d after %d", name, o.Token, o.Offset, token))
		}
		token, end = o.Token, o.Offset+o.Length
	}
	return bad
}

// VerifyWrites checks the calls of the term's host: a primary
// writes only inside its own epoch's directory, with the known exceptions. It returns the violations.
func (r *Term) VerifyWrites() (bad []string) {
	p := r.primary.Load()
	own := ""
	if p != nil {
		own = fmt.Sprintf("epochs/%010d", uint64(p.Epoch()))
	}
	for _, c := range r.Host.Trace() {
		switch c.Op {
		case volumetest.OpWriteAt, volumetest.OpMkdir, volumetest.OpRename, volumetest.OpLink, volumetest.OpRemove:
		default:
			continue
		}
		name := c.Name
		if c.Op == volumetest.OpLink {
			name = c.NewName
		}
		switch {
		case own != "" && (name == own || strings.HasPrefix(name, own+"/")):
		case strings.HasPrefix(name, "servers/"), strings.HasPrefix(name, "files/"), strings.HasPrefix(name, "history/"):
		case c.Op == volumetest.OpMkdir && name == "index", p != nil && strings.HasPrefix(name, fmt.Sprintf("index/%010d-", uint64(p.Epoch()))):
		case c.Op == volumetest.OpWriteAt && path.Base(name) == "fence":
		case c.Op == volumetest.OpRemove && strings.HasPrefix(name, "epochs/") && path.Base(name) != "fence" && path.Base(name) != "claim.json" && name < own:
		case c.Op == volumetest.OpRemove && (strings.HasPrefix(name, ".lock_state.json") || strings.HasPrefix(name, ".processed_requests.log") || strings.HasPrefix(name, ".MEMBERS")): // a temporary
		default:
			bad = append(bad, fmt.Sprintf("house rule: epoch %s did %v", own, c))
		}
	}
	return bad
}
