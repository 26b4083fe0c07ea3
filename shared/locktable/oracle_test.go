// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// requester is one request of one client.
type requester struct {
	client cluster.ClientID
	id     cluster.RequestID
}

// oracle knows in its own, simple way what a log may hold. It never forgets.
type oracle struct {
	locks    map[cluster.LockName]*oracleLock
	executed map[requester]locktable.Kind // how each request ended
	files    map[cluster.FileName]*oracleFile
	parts    map[part]bool    // the generations that files had
	used     map[uint64]int64 // where appends to an inode ended
	last     cluster.Token
	granted  map[cluster.LockName]cluster.Token // the last token of each lock, if nothing was cleared since
	marked   map[cluster.LockName]bool          // something is remembered of these locks
	slots    map[cluster.LockName]cluster.Slot  // the highest that is done, while it is remembered
	level    uint32
	version  uint64                    // of the list of servers
	servers  map[cluster.ServerID]bool // false for one that was removed
	own      bool                      // what the cell owns is said
	foreign  []string                  // what names of another cell begin with; nil without cells
}

// oracleLock is a lock as its users see it.
type oracleLock struct {
	holders []oracleHolder // the oldest first
	queue   []oraclePlace
}

type oracleHolder struct {
	token    cluster.Token
	shared   bool
	metadata string
	asked    string // by whom
	ttl      time.Duration
	maxHold  time.Duration
	slot     cluster.Slot
	permit   locktable.Permit
}

type oraclePlace struct {
	who      requester
	shared   bool
	permit   locktable.Permit
	metadata string
	slot     cluster.Slot
	turn     bool // it is one of a phase that has begun
	writers  int  // who held the lock exclusively while this one waited
}

type oracleFile struct {
	lock       cluster.LockName
	inode      uint64
	generation cluster.Generation
	end        int64
	stopped    bool
	sealed     bool
}

func newOracle() *oracle {
	return &oracle{
		locks: map[cluster.LockName]*oracleLock{}, executed: map[requester]locktable.Kind{}, files: map[cluster.FileName]*oracleFile{},
		parts: map[part]bool{}, used: map[uint64]int64{}, granted: map[cluster.LockName]cluster.Token{}, marked: map[cluster.LockName]bool{}, slots: map[cluster.LockName]cluster.Slot{}, version: 1, servers: map[cluster.ServerID]bool{1: true, 2: true, 3: true},
	}
}

func (o *oracle) lock(name cluster.LockName) *oracleLock {
	if o.locks[name] == nil {
		o.locks[name] = &oracleLock{}
	}
	return o.locks[name]
}

// held is the holder with this token, nil if there is none.
func (l *oracleLock) held(token cluster.Token) *oracleHolder {
	for i := range l.holders {
		if l.holders[i].token == token {
			return &l.holders[i]
		}
	}
	return nil
}

// first is the oldest token, 0 if nobody holds the lock.
func (l *oracleLock) first() cluster.Token {
	if len(l.holders) == 0 {
		return 0
	}
	return l.holders[0].token
}

// written reports whether somebody holds the lock alone.
func (l *oracleLock) written() bool { return len(l.holders) > 0 && !l.holders[0].shared }

// writerWaits reports whether somebody waits to hold the lock alone.
func (l *oracleLock) writerWaits() bool {
	return slices.ContainsFunc(l.queue, func(p oraclePlace) bool { return !p.shared })
}

// limits are those of all who hold the lock or wait for it.
func (l *oracleLock) limits() (all []uint32) {
	for _, h := range l.holders {
		all = append(all, h.permit.Limit)
	}
	for _, p := range l.queue {
		all = append(all, p.permit.Limit)
	}
	return all
}

// agrees reports whether nobody holds the lock, or waits for it, with another limit.
func (l *oracleLock) agrees(p locktable.Permit) bool {
	return !slices.ContainsFunc(l.limits(), func(limit uint32) bool { return limit != p.Limit })
}

// fits reports whether the permits are free.
func (l *oracleLock) fits(p locktable.Permit) bool {
	sum := uint64(p.Weight)
	for _, h := range l.holders {
		sum += uint64(h.permit.Weight)
	}
	return sum <= uint64(p.Limit)
}

// open reports whether nobody of this mode, with this permit, has to wait.
func (l *oracleLock) open(shared bool, p locktable.Permit) bool {
	if p.Limit > 0 {
		return len(l.queue) == 0 && l.fits(p)
	}
	return len(l.queue) == 0 && (len(l.holders) == 0 || shared && !l.written())
}

// next is the place whose turn it is, -1 if it is nobody's.
func (l *oracleLock) next() int {
	if len(l.queue) > 0 && l.queue[0].permit.Limit > 0 {
		if l.fits(l.queue[0].permit) {
			return 0
		}
		return -1
	}
	if i := slices.IndexFunc(l.queue, func(p oraclePlace) bool { return p.turn }); i >= 0 {
		return i
	}
	if len(l.holders) > 0 {
		return -1
	}
	return slices.IndexFunc(l.queue, func(p oraclePlace) bool { return !p.shared })
}

// phase is where all waiting readers get their turn.
func (l *oracleLock) phase() {
	for i := range l.queue {
		l.queue[i].turn = l.queue[i].shared
	}
}

// leave takes a place out of a queue.
func (o *oracle) leave(who requester) {
	for _, l := range o.locks { // at most one queue has it
		i := slices.IndexFunc(l.queue, func(p oraclePlace) bool { return p.who == who })
		if i < 0 {
			continue
		}
		left := l.queue[i]
		l.queue = slices.Delete(l.queue, i, i+1)
		if !left.shared && !l.written() && !l.writerWaits() {
			l.phase()
		}
	}
}

// execute books the one time that a request may be executed.
func (o *oracle) execute(r *record) error {
	who := requester{r.Client, r.Request}
	if r.Request == 0 || r.Client.Anonymous() {
		return nil
	}
	if kind, done := o.executed[who]; done {
		return fmt.Errorf("request %v is executed by %v after %v", who, r.Kind, kind)
	}
	o.executed[who] = r.Kind
	return nil
}

// see checks one record against all before it.
func (o *oracle) see(r *record) error {
	if o.elsewhere(string(r.Lock)) || o.elsewhere(string(r.File)) {
		return fmt.Errorf("%v of lock %q and file %q, of which another cell has one", r.Kind, r.Lock, r.File)
	}
	switch r.Kind {
	case locktable.KindOwn:
		if o.own || o.foreign == nil || r.LSN != 1 {
			return fmt.Errorf("what the cell owns is said at LSN %d, said before %t", r.LSN, o.own)
		}
		o.own = true
		return nil
	case locktable.KindGrant:
		return o.grant(r)
	case locktable.KindEnqueue:
		l, shared := o.lock(r.Lock), r.Mode == locktable.ModeShared
		if l.open(shared, r.Permit) || !l.agrees(r.Permit) {
			return fmt.Errorf("queued at lock %q, which is free, or has another limit: %+v", r.Lock, l)
		}
		turn := shared && r.Permit.Limit == 0 && !l.written() && !l.writerWaits() // a phase is being granted
		l.queue = append(l.queue, oraclePlace{who: requester{r.Client, r.Request}, shared: shared, permit: r.Permit, metadata: r.Metadata, slot: r.Slot, turn: turn})
		return nil
	case locktable.KindExpire, locktable.KindRelease, locktable.KindBreak, locktable.KindDowngrade, locktable.KindMetadata, locktable.KindAsk,
		locktable.KindExtend:
		return o.change(r)
	case locktable.KindSkip:
		l := o.lock(r.Lock)
		i := slices.IndexFunc(l.queue, func(p oraclePlace) bool { return p.who == requester{r.Client, r.Request} })
		if i < 0 || l.queue[i].slot == "" || o.slots[r.Lock].Compare(l.queue[i].slot) < 0 {
			return fmt.Errorf("a waiter of lock %q is told that its slot is done; %q is: %+v", r.Lock, o.slots[r.Lock], l.queue)
		}
		fallthrough
	case locktable.KindWaitTimeout, locktable.KindCancel:
		o.leave(requester{r.Client, r.Request})
		return o.execute(r)
	case locktable.KindForceClear:
		clear(o.locks)
		clear(o.granted)
		return nil
	case locktable.KindForgetClient: // a self-chosen client may start anew
		for who := range o.executed {
			if who.client == r.Client && !r.Client.Opened() {
				delete(o.executed, who)
			}
		}
		return nil
	case locktable.KindLevel:
		if r.Level <= o.level {
			return fmt.Errorf("feature level %d is changed to %d", o.level, r.Level)
		}
		o.level = r.Level
		return nil
	case locktable.KindMembers:
		return o.members(r)
	case locktable.KindForgetMark:
		if !o.marked[r.Lock] {
			return fmt.Errorf("nothing was remembered of lock %q", r.Lock)
		}
		delete(o.marked, r.Lock)
		delete(o.slots, r.Lock)
		return nil
	default:
		return o.file(r)
	}
}

// elsewhere reports whether another cell has this name.
func (o *oracle) elsewhere(name string) bool {
	return slices.ContainsFunc(o.foreign, func(p string) bool { return strings.HasPrefix(name, p) })
}

// members is about the list of servers.
func (o *oracle) members(r *record) error {
	list, err := cluster.ParseMembership(r.Members)
	if err != nil || list.Version != o.version+1 {
		return fmt.Errorf("version %d of the list of servers follows %d: %v", list.Version, o.version, err)
	}
	o.version = list.Version
	for id, there := range o.servers {
		if _, listed := list.Servers.Find(id); listed && !there {
			return fmt.Errorf("server %d comes back", id)
		} else if there && !listed && !list.Removed(id) {
			return fmt.Errorf("server %d is not listed, and not removed", id)
		}
		o.servers[id] = false
	}
	for _, id := range list.Servers.IDs() {
		o.servers[id] = true
	}
	return o.execute(r)
}

// change is about one grant.
func (o *oracle) change(r *record) error {
	l := o.lock(r.Lock)
	g := l.held(r.Token)
	if g == nil {
		return fmt.Errorf("%v of %q under token %d: live are %+v", r.Kind, r.Lock, r.Token, l.holders)
	}
	switch r.Kind {
	case locktable.KindMetadata:
		g.metadata = r.Metadata
	case locktable.KindAsk:
		g.asked = r.Actor
	case locktable.KindExtend:
		if r.TTL < g.ttl || g.maxHold > 0 && r.TTL > g.maxHold {
			return fmt.Errorf("the lease of token %d of %q, %v long, is extended to %v and may be held for %v", r.Token, r.Lock, g.ttl, r.TTL, g.maxHold)
		}
		g.ttl = r.TTL
	case locktable.KindDowngrade:
		if g.shared {
			return fmt.Errorf("downgrade of the shared token %d of %q", r.Token, r.Lock)
		}
		g.shared = true
		l.phase()
	default:
		if r.Kind == locktable.KindBreak && r.Request == 0 && (g.asked == "" || g.asked != r.Actor) {
			return fmt.Errorf("lock %q is broken for %q, asked for by %q", r.Lock, r.Actor, g.asked)
		}
		if r.Slot != "" {
			if g.slot != r.Slot || o.slots[r.Lock].Compare(r.Slot) >= 0 {
				return fmt.Errorf("slot %q of %q is done under a token for %q, and %q was done", r.Slot, r.Lock, g.slot, o.slots[r.Lock])
			}
			o.slots[r.Lock], o.marked[r.Lock] = r.Slot, true
		}
		written := l.written()
		l.holders = slices.DeleteFunc(l.holders, func(h oracleHolder) bool { return h.token == r.Token })
		if written {
			l.phase()
		}
	}
	return o.execute(r)
}

func (o *oracle) grant(r *record) error {
	l, who, shared := o.lock(r.Lock), requester{r.Client, r.Request}, r.Mode == locktable.ModeShared
	if l.written() || !shared && len(l.holders) > 0 || !l.agrees(r.Permit) || r.Permit.Limit > 0 && !l.fits(r.Permit) {
		return fmt.Errorf("lock %q is held by %+v and goes to %v too, with %+v", r.Lock, l.holders, who, r.Permit)
	}
	if i := slices.IndexFunc(l.queue, func(p oraclePlace) bool { return p.who == who }); i >= 0 {
		p := l.queue[i]
		switch {
		case i != l.next():
			return fmt.Errorf("lock %q goes to %v, but next in %+v is %d", r.Lock, who, l.queue, l.next())
		case p.shared != shared || p.metadata != r.Metadata || p.slot != r.Slot || p.permit != r.Permit:
			return fmt.Errorf("lock %q is granted to %+v with metadata %q, shared %t", r.Lock, p, r.Metadata, shared)
		case shared && p.writers > 1:
			return fmt.Errorf("lock %q had %d writers while the reader %v waited", r.Lock, p.writers, who)
		}
		l.queue = slices.Delete(l.queue, i, i+1)
	} else if !l.open(shared, r.Permit) {
		return fmt.Errorf("lock %q goes to %v, who did not wait, before %+v", r.Lock, who, l.queue)
	}
	if r.Slot != "" && o.slots[r.Lock].Compare(r.Slot) >= 0 {
		return fmt.Errorf("lock %q goes to %v for slot %q, and %q is done", r.Lock, who, r.Slot, o.slots[r.Lock])
	}
	token := cluster.Token(r.LSN)
	if token <= o.last {
		return fmt.Errorf("token %d after %d", token, o.last)
	}
	o.last = token
	if r.After != 0 && (o.granted[r.Lock] != r.After || !o.marked[r.Lock]) {
		return fmt.Errorf("lock %q is granted after token %d, and was granted under %d last, remembered %t", r.Lock, r.After, o.granted[r.Lock], o.marked[r.Lock])
	}
	o.granted[r.Lock] = token
	o.marked[r.Lock] = o.marked[r.Lock] || r.Remember
	l.holders = append(l.holders, oracleHolder{token: token, shared: shared, metadata: r.Metadata, ttl: r.TTL, maxHold: r.MaxHold, slot: r.Slot, permit: r.Permit})
	for i := range l.queue {
		if !shared {
			l.queue[i].writers++
		}
	}
	return o.execute(r)
}

// given says that no offset of an inode is given away twice, unless it is another inode.
func (o *oracle) given(recs []record, facts locktable.FileFacts) error {
	for i := range recs {
		r := &recs[i]
		if r.Kind != locktable.KindBind && r.Kind != locktable.KindRotate {
			continue
		}
		if facts.Made {
			delete(o.used, r.Inode)
		}
		if o.used[r.Inode] > facts.Size {
			return fmt.Errorf("inode %d is bound at size %d, and was used up to %d", r.Inode, facts.Size, o.used[r.Inode])
		}
	}
	return nil
}

// begins says that no file of this name had the generation before.
func (o *oracle) begins(r *record) error {
	p := part{r.File, r.Generation}
	if o.parts[p] {
		return fmt.Errorf("generation %d of file %q begins twice", p.generation, p.file)
	}
	o.parts[p] = true
	return nil
}

func (o *oracle) file(r *record) error {
	if r.Kind == locktable.KindBind || r.Kind == locktable.KindRotate {
		if err := o.begins(r); err != nil {
			return err
		}
	}
	if g := o.lock(r.Lock).held(r.Token); r.Token != 0 && (g == nil || g.shared) {
		return fmt.Errorf("%v under token %d of %q, which is %+v", r.Kind, r.Token, r.Lock, g)
	}
	f := o.files[r.File]
	switch {
	case r.Kind == locktable.KindBind && f == nil:
		o.files[r.File] = &oracleFile{lock: r.Lock, inode: r.Inode, generation: r.Generation, end: r.Offset}
	case r.Kind == locktable.KindBind:
		return fmt.Errorf("file %q is bound twice", r.File)
	case r.File == "":
		return nil
	case f == nil || r.Kind != locktable.KindQuarantine && f.lock != r.Lock:
		return fmt.Errorf("%v of file %q under lock %q: %+v", r.Kind, r.File, r.Lock, f)
	case r.Kind == locktable.KindQuarantine:
		f.stopped = true
	case r.Kind == locktable.KindSeal:
		if f.stopped || f.sealed || r.Offset != f.end || r.Generation != f.generation {
			return fmt.Errorf("sealed at %d of generation %d: %+v", r.Offset, r.Generation, f)
		}
		f.sealed = true
	case r.Kind == locktable.KindAlready:
		if r.Offset != f.end || r.Generation != f.generation {
			return fmt.Errorf("already at %d of generation %d: %+v", r.Offset, r.Generation, f)
		}
	case r.Kind == locktable.KindUnbind:
		if f.sealed || f.stopped {
			return fmt.Errorf("unbound, and sealed or quarantined: %+v", f)
		}
		delete(o.files, r.File)
	case r.Kind == locktable.KindRotate:
		*f = oracleFile{lock: r.Lock, inode: r.Inode, generation: f.generation + 1}
	case r.Kind == locktable.KindAppend:
		if f.stopped || f.sealed || r.Offset != f.end || r.Generation != f.generation {
			return fmt.Errorf("append at %d of generation %d to %+v", r.Offset, r.Generation, f)
		}
		f.end += r.Length
		o.used[f.inode] = f.end
	}
	return o.execute(r)
}
