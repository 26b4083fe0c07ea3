// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// world sends random requests to a table, to its twin, which only ever applies
// decoded records and is often replaced by its own export, and to an oracle.
type world struct {
	*harness
	rng    *rand.Rand
	twin   *locktable.Table
	oracle *oracle
	frozen *locktable.Table // a clone that nothing may change
	sealed uint64           // the hash it had

	clients []cluster.ClientID
	nextID  map[cluster.ClientID]cluster.RequestID
	past    []asked
	nonce   uint64
	inode   uint64
	counts  map[string]int       // of what happened, to prove that it did
	foreign map[part]cluster.LSN // when it was quarantined last
	owners  map[cluster.ClientID]string
}

// part is a generation of a file.
type part struct {
	file       cluster.FileName
	generation cluster.Generation
}

// asked is a request that was sent before, and its last answer.
type asked struct {
	q   locktable.Request
	dec locktable.Decision
}

func TestRandomRequestsAgainstTheOracle(t *testing.T) {
	seeds, steps := 24, 2000
	if testing.Short() {
		seeds, steps = 4, 800
	}
	total := map[string]int{}
	for seed := range seeds + seeds/4 {
		w := newWorld(t, uint64(seed), seed >= seeds, total)
		for step := range steps {
			w.step(step)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		w.reload()
	}
	if testing.Short() {
		return // too few steps to meet everything
	}
	if total["ring"] == 0 || total["permits"] == 0 {
		t.Errorf("%d rings in all runs, %d times some have permits and others wait", total["ring"], total["permits"])
	}
	if total["together"] < 4 || total["cut"] < seeds {
		t.Errorf("at most %d hold a lock together, %d batches were cut", total["together"], total["cut"])
	}
	for _, kind := range kinds() {
		if total[kind.String()] == 0 {
			t.Errorf("no record of kind %v in all runs", kind)
		}
	}
	for _, status := range []cluster.Status{
		cluster.StatusOK, cluster.StatusHeld, cluster.StatusInvalidToken, cluster.StatusInvalidArgument, cluster.StatusLeaseExpired,
		cluster.StatusWaitTimeout, cluster.StatusCancelled, cluster.StatusStaleRequest, cluster.StatusFileQuarantined,
		cluster.StatusOffsetMismatch, cluster.StatusFileSealed, cluster.StatusPermissionDenied, cluster.StatusLockChanged,
		cluster.StatusAlreadyDone, cluster.StatusOtherLimit, cluster.StatusWrongCell,
	} {
		if total[status.String()] == 0 {
			t.Errorf("no answer %v in all runs", status)
		}
	}
}

// newWorld makes a table and its oracle, of a cell of a site or not.
func newWorld(t *testing.T, seed uint64, cell bool, counts map[string]int) *world {
	w := &world{
		harness: newHarness(t), rng: rand.New(rand.NewPCG(seed, 1)), twin: locktable.New(), oracle: newOracle(),
		nextID: map[cluster.ClientID]cluster.RequestID{}, counts: counts,
		foreign: map[part]cluster.LSN{}, owners: map[cluster.ClientID]string{},
	}
	if cell {
		w.oracle.foreign = []string{"l1", "f1", "p/"}
		w.commit(w.table.DecideOwn(own(t, 0), w.epoch, nil))
	}
	for range 4 {
		w.openOne()
	}
	w.clients = append(w.clients, "curl", "batch-7", "cron")
	return w
}

func kinds() (all []locktable.Kind) {
	for k := locktable.Kind(1); k <= locktable.MaxKind; k++ {
		if k.Known() {
			all = append(all, k)
		}
	}
	return all
}

func (w *world) openOne() {
	w.nonce++
	mark := cluster.Mark(w.nonce % 3) // logs of old have none
	w.ask(locktable.Request{Op: locktable.OpOpenClient, Nonce: w.nonce, Mark: mark, Identity: w.identity("")}, locktable.FileFacts{})
	w.clients = append(w.clients, cluster.OpenedClientID(w.table.LSN(), mark))
}

func (w *world) step(step int) {
	switch n := w.rng.IntN(100); {
	case n < 14 && len(w.past) > 0:
		w.repeat()
	case n < 25:
		w.time()
	case n < 27:
		restored, err := overJSON(w.twin)
		if err != nil {
			w.tb.Fatal(err)
		}
		w.twin = restored
	case n < 28:
		w.twin = w.twin.Clone()
		w.thaw()
	case n < 29 && step > 100:
		w.openOne()
	default:
		q := w.request()
		if w.rng.IntN(30) == 0 {
			q = w.members(q)
		}
		w.inode++
		w.ask(q, locktable.FileFacts{Inode: 1 + w.inode%50, Size: int64(w.rng.IntN(2) * 10), Made: w.rng.IntN(4) > 0})
	}
}

// thaw requires that the frozen clone is as it was, and takes a new one.
func (w *world) thaw() {
	if w.frozen != nil && (w.frozen.Hash() != w.sealed || w.frozen.Check() != nil) {
		w.tb.Fatalf("a clone has changed: %v", w.frozen.Check())
	}
	w.frozen = w.table.Clone()
	w.sealed = w.frozen.Hash()
}

// request makes a new request, mostly a sensible one.
func (w *world) request() locktable.Request {
	c := w.clients[w.rng.IntN(len(w.clients))]
	if w.rng.IntN(10) == 0 {
		c = cluster.ClientID(fmt.Sprintf("~%d", w.table.LSN()/100))
	}
	w.nextID[c] += cluster.RequestID(1 + w.rng.IntN(20)/19*5)
	q := locktable.Request{Client: c, ID: w.nextID[c], Op: locktable.Op(1 + w.rng.IntN(8)), Lock: w.lock(), Identity: w.identity(c)}
	switch w.rng.IntN(24) {
	case 0, 1:
		q.Op = locktable.OpMetadata
	case 2, 3, 4, 5:
		q.Op = locktable.OpSeal
	}
	switch w.rng.IntN(16) {
	case 0:
		q.Op = locktable.OpDowngrade
	case 1:
		q.Op = locktable.OpExtend
	}
	if w.rng.IntN(40) == 0 {
		q.ID = 1 + cluster.RequestID(w.rng.Uint64N(uint64(q.ID))) // out of order
	}
	if w.rng.IntN(4) == 0 {
		q.LowWater = q.ID - min(q.ID, cluster.RequestID(w.rng.IntN(20)))
	}
	if q.Token = w.token(q.Lock); q.Token == 0 || w.rng.IntN(10) == 0 {
		q.Token = cluster.Token(1 + w.rng.Uint64N(uint64(w.table.LSN())))
	}
	q.File = cluster.FileName(fmt.Sprintf("f%d", w.rng.IntN(6)))
	switch q.Op {
	case locktable.OpAcquire:
		w.acquire(&q)
	case locktable.OpDowngrade:
		q.File = ""
	case locktable.OpExtend:
		q.File, q.TTL = "", time.Duration(1+w.rng.IntN(5))*time.Second
	case locktable.OpMetadata:
		if q.File = ""; w.rng.IntN(4) > 0 {
			q.Metadata = fmt.Sprint("is now ", q.ID)
		}
	case locktable.OpAppend:
		q = appendTo(q.Client, q.ID, q.Lock, q.Token, q.File, fmt.Sprint("data", w.table.LSN()))
		q.AdoptExisting = w.rng.IntN(2) == 0
		if w.rng.IntN(4) == 0 {
			f, _ := w.table.File(q.File)
			q.At = new(f.End + int64(w.rng.IntN(2)))
		}
	case locktable.OpBind:
		q.AdoptExisting = w.rng.IntN(2) == 0
	case locktable.OpRelease:
		h := w.oracle.lock(q.Lock).held(q.Token)
		q.Done = h != nil && h.slot != "" && w.rng.IntN(4) > 0 || w.rng.IntN(20) == 0
	case locktable.OpCancel:
		q.Target = 1 + cluster.RequestID(w.rng.Uint64N(uint64(w.nextID[c])+2))
		q.LowWater = 0
	case locktable.OpBreak:
		if w.rng.IntN(2) == 0 {
			q.Op = locktable.OpRelease // breaks are rare
		} else if q.Actor = fmt.Sprint("actor", w.rng.IntN(3)); w.rng.IntN(3) > 0 {
			q.Grace = time.Duration(1+w.rng.IntN(60)) * time.Second
		}
	}
	return q
}

// acquire completes a request for a lock.
func (w *world) acquire(q *locktable.Request) {
	q.TTL, q.File = time.Duration(1+w.rng.IntN(3))*time.Second, ""
	q.Wait = []time.Duration{0, 5 * time.Second, forever}[w.rng.IntN(3)]
	q.Holder.Host = fmt.Sprintf("host%d", w.rng.IntN(2))
	q.Mode = locktable.Mode(w.rng.IntN(2))
	q.Permit = w.permit(q.Lock)
	if w.rng.IntN(4) == 0 {
		q.Metadata = fmt.Sprint("begins as ", q.ID)
		q.MaxHold, q.Heartbeat = time.Duration(w.rng.IntN(2))*time.Minute, w.rng.IntN(2) == 0
	}
	if q.Permit.Limit > 0 {
		q.Mode = locktable.ModeExclusive
	}
	if q.Remember = w.rng.IntN(4) == 0; w.rng.IntN(2) == 0 && q.Mode == locktable.ModeExclusive && q.Permit.Limit == 0 {
		q.Slot = cluster.Slot(fmt.Sprint("run-", int(w.table.LSN())/40+w.rng.IntN(2)))
	}
	if w.rng.IntN(6) == 0 {
		q.After, q.Wait = max(1, w.oracle.granted[q.Lock]-cluster.Token(w.rng.IntN(2))), 0
	}
}

// members makes a request of a change of the list of servers, of which some are refused.
func (w *world) members(q locktable.Request) locktable.Request {
	now, made := w.table.Members()
	if !made {
		now = cluster.FirstMembership(firstServers())
	}
	id := cluster.ServerID(1 + w.rng.IntN(int(now.HighestID)+2))
	q = locktable.Request{Op: locktable.OpMembers, Client: q.Client, ID: q.ID, Identity: q.Identity}
	change := cluster.MemberChange{Kind: cluster.ChangeKind(1 + w.rng.IntN(3)), Server: member(id)}
	switch {
	case change.Kind == cluster.RemoveServer && len(now.Servers) > 2:
		change.Server = cluster.Member{ID: id}
	case change.Kind != cluster.AddServer || len(now.Servers) < 6:
		change.Server.Client += fmt.Sprint(w.rng.IntN(10))
	}
	if w.rng.IntN(3) == 0 {
		change.IfVersion = now.Version - uint64(w.rng.IntN(2))
	}
	q.Members = &locktable.MembersRequest{First: firstServers(), Change: change}
	return q
}

// identity returns the one that a client belongs to, sometimes another.
func (w *world) identity(c cluster.ClientID) string {
	identities := []string{"", "user:alice", "user:bob"}
	if w.rng.IntN(12) == 0 {
		return identities[w.rng.IntN(3)]
	}
	if of := w.owners[c]; of != "" {
		return of
	}
	return identities[w.nonce%2]
}

// stranger reports whether an identity may not use what belongs to another one.
func stranger(identity, owner string) bool { return owner != "" && owner != identity }

// mayDecide wants that a decision changes nothing that belongs to another identity.
func (w *world) mayDecide(q *locktable.Request, recs []record, dec locktable.Decision) {
	denied := dec.Outcome.Status == cluster.StatusPermissionDenied
	if denied && len(recs) > 0 || !denied && stranger(q.Identity, w.owners[q.Client]) {
		w.tb.Errorf("%+v, of a client of %q: %+v %+v", q, w.owners[q.Client], dec, recs)
	}
	if len(recs) == 0 || recs[0].Token == 0 || q.Op == locktable.OpBreak {
		return
	}
	if g, live := w.table.Live(q.Lock, q.Token); live && stranger(q.Identity, w.owners[g.Client]) {
		w.tb.Errorf("%+v, for a grant of %q: %+v %+v", q, w.owners[g.Client], dec, recs)
	}
}

// isOurs wants that what another cell has is refused, unless it is refused for something else, and nothing else is.
func (w *world) isOurs(q *locktable.Request, recs []record, dec locktable.Decision) {
	foreign := w.oracle.elsewhere(string(q.Lock)) || w.oracle.elsewhere(string(q.File))
	wrong := dec.Outcome.Status == cluster.StatusWrongCell
	if wrong && !foreign || foreign && (len(recs) > 0 || dec.Pending || dec.Outcome.Status == cluster.StatusOK) && q.Op != locktable.OpCancel {
		w.tb.Errorf("%+v, of another cell %t: %+v %+v", q, foreign, dec, recs)
	}
}

// noteOwner follows to which identity a client belongs.
func (w *world) noteOwner(r *record) {
	c := r.Client
	if r.Kind == locktable.KindOpenClient {
		c = cluster.OpenedClientID(r.LSN, r.Mark)
	}
	if w.owners[c] == "" {
		w.owners[c] = r.Identity
	}
}

// compareOwners is called after records were applied.
func (w *world) compareOwners() {
	got := owners(w.table)
	for c := range w.owners {
		if _, known := got[c]; !known {
			delete(w.owners, c)
		}
	}
	for _, t := range []*locktable.Table{w.table, w.twin} {
		for c, of := range owners(t) {
			if w.owners[c] != of {
				w.tb.Fatalf("at LSN %d client %s is of %q, want %q", t.LSN(), c, of, w.owners[c])
			}
		}
	}
	for name := range w.table.Locks("", "") {
		for g := range w.table.Grants(name.Name) {
			if g.Identity != w.owners[g.Client] {
				w.tb.Fatalf("the grant of lock %q is of %q, want %q", g.Lock, g.Identity, w.owners[g.Client])
			}
		}
	}
}

func (w *world) lock() cluster.LockName {
	if w.rng.IntN(4) == 0 {
		return cluster.LockName(fmt.Sprintf("s%d", w.rng.IntN(2)))
	}
	return cluster.LockName(fmt.Sprintf("l%d", w.rng.IntN(5)))
}

// permit is mostly one of a lock with a limit, of none for others.
func (w *world) permit(lock cluster.LockName) locktable.Permit {
	if (lock[0] == 's') == (w.rng.IntN(20) == 0) {
		return locktable.Permit{}
	}
	p := locktable.Permit{Limit: 4}
	if w.rng.IntN(20) == 0 {
		p.Limit = uint32(1 + w.rng.IntN(1<<30))
	}
	p.Weight = 1 + uint32(w.rng.IntN(int(min(p.Limit, 4))))
	return p
}

// repeat asks again, sometimes under the same ID for something else.
func (w *world) repeat() {
	i := max(0, len(w.past)-1-w.rng.IntN(60))
	old := w.past[i]
	if w.rng.IntN(5) == 0 && old.q.Op != locktable.OpMembers { // which has no lock
		old.q.Lock += "x"
		w.ask(old.q, locktable.FileFacts{})
		return
	}
	recs, dec := w.ask(old.q, locktable.FileFacts{Inode: 1})
	if old.dec.Outcome.LSN == 0 || old.dec.Pending || old.q.Client.Anonymous() || old.q.Op == locktable.OpCancel {
		return // a refusal may be another answer next time
	}
	was, is := old.dec.Outcome, dec.Outcome
	if len(recs) != 0 {
		w.tb.Errorf("%+v was executed again: %+v", old.q, recs)
	}
	switch {
	case is.Status == cluster.StatusStaleRequest:
	case is.Status == cluster.StatusPermissionDenied && stranger(old.q.Identity, w.owners[old.q.Client]): // it had no identity before
	case is.LSN != was.LSN || is.Token != was.Token || is.Offset != was.Offset || is.Generation != was.Generation:
		w.tb.Errorf("repeat of %+v: %+v, was %+v", old.q, is, was)
	case is.Status == cluster.StatusFileQuarantined && old.q.Op == locktable.OpAppend:
		if !is.Committed || was.LSN > w.foreign[part{was.File, was.Generation}] && !w.mayBeLost(was) {
			w.tb.Errorf("repeat of %+v: %+v, was %+v", old.q, is, was)
		}
		w.counts["lost"]++
	case is.Status == cluster.StatusOK && old.q.Op == locktable.OpAppend && w.mustBeLost(was):
		w.tb.Errorf("repeat of %+v is told as done: %+v", old.q, is)
	case is.Status != was.Status:
		_, live := w.table.Live(old.q.Lock, was.Token)
		if is.Status != cluster.StatusLeaseExpired || live {
			w.tb.Errorf("repeat of %+v: %+v, was %+v", old.q, is, was)
		}
	}
}

// mustBeLost reports whether an append is known to be of a generation that was quarantined later.
func (w *world) mustBeLost(was locktable.Outcome) bool {
	return w.foreign[part{was.File, was.Generation}] > was.LSN
}

// mayBeLost reports whether a healthy generation lies between two that are not told apart any more.
func (w *world) mayBeLost(was locktable.Outcome) bool {
	later, before := 0, 0
	for p := range w.foreign {
		if p.file == was.File && p.generation > was.Generation {
			later++
		} else if p.file == was.File {
			before++
		}
	}
	return later >= 4 && before > 0
}

// time decides something that no request asked for.
func (w *world) time() {
	lock := w.lock()
	both := func(decide func(t *locktable.Table) []record) {
		recs, twins := decide(w.table), decide(w.twin)
		if !reflect.DeepEqual(recs, twins) {
			w.tb.Fatalf("decided %+v, the twin %+v", recs, twins)
		}
		w.commit(recs)
		w.settle()
	}
	switch n := w.rng.IntN(40); {
	case n < 6:
		if a, ok := w.table.AskOf(lock, w.token(lock)); ok {
			both(func(t *locktable.Table) []record { return t.DecideGrace(lock, a.Token, w.epoch, nil) })
		}
	case n < 18:
		token := w.token(lock)
		both(func(t *locktable.Table) []record { return t.DecideExpire(lock, token, "", w.epoch, nil) })
	case n < 28:
		for x := range w.table.Waiters(lock) {
			if w.rng.IntN(3) == 0 {
				continue
			}
			both(func(t *locktable.Table) []record { return t.DecideWaitTimeout(x.Client, x.Request, w.epoch, nil) })
			break
		}
	case n < 34:
		file := cluster.FileName(fmt.Sprintf("f%d", w.rng.IntN(6)))
		both(func(t *locktable.Table) []record { return t.DecideQuarantine(file, "test", w.epoch, nil) })
	case n < 36:
		c := w.clients[w.rng.IntN(len(w.clients))]
		both(func(t *locktable.Table) []record { return t.DecideGivenUp(c, w.epoch, nil) })
		both(func(t *locktable.Table) []record { return t.DecideForget(c, w.epoch, nil) })
		if _, known := w.table.Client(c); !known && !c.Opened() { // it may start anew
			w.past = slices.DeleteFunc(w.past, func(a asked) bool { return a.q.Client == c })
		}
	case n < 37:
		both(func(t *locktable.Table) []record { return t.DecideForceClear(w.epoch, nil) })
		upTo := cluster.LSN(w.rng.Uint64N(uint64(w.table.LSN())))
		both(func(t *locktable.Table) []record { return t.DecideForgetMarks(upTo, w.epoch, nil) })
	case n < 38:
		both(func(t *locktable.Table) []record { return t.DecideHandover("test", w.epoch, nil) })
	case n < 39:
		list, _ := w.table.Members()
		for _, id := range list.Servers.IDs() {
			if w.rng.IntN(2) == 0 {
				both(func(t *locktable.Table) []record { return t.DecideMember(id, w.epoch, nil) })
			}
		}
		both(func(t *locktable.Table) []record { return t.DecideLevel(locktable.MaxLevel, "test", w.epoch, nil) })
	default:
		w.beginTerm()
	}
}

func (w *world) beginTerm() {
	w.epoch++
	recs := w.table.DecideTerm(1, w.epoch, nil)
	if twins := w.twin.DecideTerm(1, w.epoch, nil); !reflect.DeepEqual(recs, twins) {
		w.tb.Fatalf("decided %+v, the twin %+v", recs, twins)
	}
	w.commit(recs)
	w.settle()
}

// settle decides what is owed, as the core loop does before anything else.
func (w *world) settle() {
	for w.table.HasPendingGrants() {
		w.commit(w.table.DecideOwed(w.epoch, nil))
	}
}

// token is that of some holder of the lock, 0 if it is free.
func (w *world) token(lock cluster.LockName) cluster.Token {
	var tokens []cluster.Token
	for g := range w.table.Grants(lock) {
		tokens = append(tokens, g.Token)
	}
	if len(tokens) == 0 {
		return 0
	}
	return tokens[w.rng.IntN(len(tokens))]
}

// ask decides on both tables and commits.
func (w *world) ask(q locktable.Request, facts locktable.FileFacts) ([]record, locktable.Decision) {
	if status, _ := q.Validate(cluster.DefaultTiming()); status != cluster.StatusOK {
		return nil, locktable.Decision{}
	}
	recs, dec := w.table.Decide(&q, w.epoch, facts, nil)
	twins, twinDec := w.twin.Decide(&q, w.epoch, facts, nil)
	if !reflect.DeepEqual(recs, twins) || !reflect.DeepEqual(dec, twinDec) {
		w.tb.Fatalf("%+v: decided %+v %+v, the twin %+v %+v", q, dec, recs, twinDec, twins)
	}
	if err := w.oracle.given(recs, facts); err != nil {
		w.tb.Fatalf("%+v: %v", q, err)
	}
	w.mayDecide(&q, recs, dec)
	w.isOurs(&q, recs, dec)
	if done := w.oracle.slots[q.Lock]; q.Slot != "" && done.Compare(q.Slot) >= 0 && len(recs) > 0 {
		w.tb.Fatalf("%+v: %+v, and %q is done", q, dec, done)
	}
	agrees := w.oracle.lock(q.Lock).agrees(q.Permit)
	if other := dec.Outcome.Status == cluster.StatusOtherLimit; other && (agrees || !slices.Contains(w.oracle.lock(q.Lock).limits(), dec.Outcome.Permit.Limit)) ||
		q.Op == locktable.OpAcquire && len(recs) > 0 && !agrees {
		w.tb.Fatalf("%+v: %+v, but the oracle has %+v", q, dec, w.oracle.lock(q.Lock))
	}
	open := w.oracle.lock(q.Lock).open(q.Mode == locktable.ModeShared, q.Permit)
	if q.Op == locktable.OpAcquire && len(recs) > 0 && (dec.Outcome.Status == cluster.StatusOK) != open {
		w.tb.Fatalf("%+v: %+v, but the oracle has %+v", q, dec, w.oracle.lock(q.Lock))
	}
	if len(recs) > 1 && recs[0].Kind != locktable.KindBind && w.rng.IntN(4) == 0 {
		// The log ends between two records of a batch. The next term completes it.
		w.commit(recs[:1+w.rng.IntN(len(recs)-1)])
		w.counts["cut"]++
		w.beginTerm()
	} else {
		w.commit(recs)
		w.settle()
	}
	w.counts[dec.Outcome.Status.String()]++
	if last := w.oracle.granted[q.Lock]; dec.Outcome.Status == cluster.StatusLockChanged && w.oracle.marked[q.Lock] && last == q.After {
		w.tb.Fatalf("%+v: %+v, and it is remembered that nobody was granted the lock since", q, dec)
	}
	if q.Op != locktable.OpOpenClient {
		w.past = append(w.past, asked{q, dec})
	}
	return recs, dec
}

// commit shows the records to the oracle and applies them to both tables.
func (w *world) commit(recs []record) {
	for i := range recs {
		r := &recs[i]
		w.counts[r.Kind.String()]++
		if r.Kind == locktable.KindQuarantine {
			w.foreign[part{r.File, r.Generation}] = r.LSN
		}
		if err := w.oracle.see(r); err != nil {
			w.tb.Fatalf("record %d: %v", r.LSN, err)
		}
		w.noteOwner(r)
		decoded := recode(w.tb, r)
		if err := w.twin.Apply(&decoded); err != nil {
			w.tb.Fatal(err)
		}
	}
	w.apply(recs)
	if w.twin.Hash() != w.table.Hash() {
		w.tb.Fatalf("at LSN %d the twin has another hash", w.table.LSN())
	}
	w.compareOwners()
	w.compareRings()
	// Whoever the oracle has as holders must hold, and nobody else.
	for _, r := range recs {
		v, _ := w.table.Lock(r.Lock)
		l := w.oracle.lock(r.Lock)
		if r.Lock == "" {
			continue
		}
		if v.Grant.Token != l.first() || v.Holders != len(l.holders) || v.QueueLength != len(l.queue) {
			w.tb.Fatalf("lock %q: %+v, the oracle has %+v", r.Lock, v, l)
		}
		w.counts["together"] = max(w.counts["together"], v.Holders)
		taken := uint32(0)
		for _, h := range l.holders {
			taken += h.permit.Weight
		}
		if v.Taken != taken || v.Limit > 0 && !slices.Contains(l.limits(), v.Limit) {
			w.tb.Fatalf("lock %q: %+v, the oracle has %+v", r.Lock, v, l)
		}
		if v.Limit > 0 && v.Holders > 1 && v.QueueLength > 0 {
			w.counts["permits"]++
		}
		i := 0
		for g := range w.table.Grants(r.Lock) {
			h := l.holders[i]
			if i++; g.Token != h.token || (g.Mode == locktable.ModeShared) != h.shared || g.Permit != h.permit || g.Metadata != h.metadata ||
				(g.Ask == nil) != (h.asked == "") || g.Ask != nil && g.Ask.Actor != h.asked {
				w.tb.Fatalf("lock %q: %+v, the oracle has %+v", r.Lock, g, h)
			}
		}
		if l.next() >= 0 != w.table.HasPendingGrants() {
			w.tb.Fatalf("lock %q: a grant is owed: %t, the oracle has %+v", r.Lock, w.table.HasPendingGrants(), l)
		}
	}
}
