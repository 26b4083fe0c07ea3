// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// ErrBadState means that exported entities do not make a table.
var ErrBadState = errors.New("bad table state")

// Entity is one piece of an exported table, one line of JSON in a checkpoint.
// Exactly one field is set.
type Entity struct {
	Lock    *LockState    `json:"lock,omitempty"`
	File    *FileEntity   `json:"file,omitempty"`
	Client  *ClientState  `json:"client,omitempty"`
	Receipt *ReceiptState `json:"receipt,omitempty"`
	Past    *PastState    `json:"past,omitempty"`
	Level   *LevelState   `json:"level,omitempty"`
	// Members is the list of servers.
	Members *cluster.Membership `json:"members,omitempty"`
	Mark    *MarkState          `json:"mark,omitempty"`
	// Own is what the cell owns.
	Own *cluster.Own `json:"own,omitempty"`
}

// LockState is a lock with a holder or waiters, or a part of one: a holder or
// some of the waiters. Locks that only have files are made from their FileEntity.
type LockState struct {
	Name    cluster.LockName `json:"name"`
	Grant   *GrantState      `json:"grant"` // null: it is free, or another part has the grant
	Waiters []WaiterState    `json:"waiters"`
	// Phase is the LSN up to which shared waiters are owed a grant; those after it wait for
	// the next phase. 0: none is under way.
	Phase cluster.LSN `json:"phase,omitempty"`
}

// GrantState is a live grant.
type GrantState struct {
	Token     cluster.Token     `json:"token"`
	Epoch     cluster.Epoch     `json:"epoch"`
	ClientID  cluster.ClientID  `json:"client_id"`
	RequestID cluster.RequestID `json:"request_id"`
	TTL       Span              `json:"ttl"`
	Mode      Mode              `json:"mode"`
	Holder    Holder            `json:"holder"`
	SinceMS   int64             `json:"since_ms,omitempty"` // milliseconds since 1970
	Metadata  string            `json:"metadata,omitempty"`
	Ask       *AskState         `json:"ask,omitempty"`
	MaxHold   Span              `json:"max_hold,omitzero"`
	Heartbeat bool              `json:"heartbeat,omitempty"`
	Remember  bool              `json:"remember,omitempty"`
	Slot      cluster.Slot      `json:"slot,omitempty"`
	Permit    *Permit           `json:"permit,omitempty"`
}

// AskState is an Ask to the holder of the grant.
type AskState struct {
	LSN    cluster.LSN `json:"lsn"`
	Grace  Span        `json:"grace"`
	Actor  string      `json:"actor"`
	Reason string      `json:"reason"`
}

// WaiterState is a place in a queue.
type WaiterState struct {
	LSN       cluster.LSN       `json:"lsn"`
	Epoch     cluster.Epoch     `json:"epoch"`
	ClientID  cluster.ClientID  `json:"client_id"`
	RequestID cluster.RequestID `json:"request_id"`
	Hash      Hex               `json:"hash"`
	TTL       Span              `json:"ttl"`
	Wait      Span              `json:"wait"`
	Mode      Mode              `json:"mode"`
	Holder    Holder            `json:"holder"`
	SinceMS   int64             `json:"since_ms,omitempty"`
	Metadata  string            `json:"metadata,omitempty"`
	MaxHold   Span              `json:"max_hold,omitzero"`
	Heartbeat bool              `json:"heartbeat,omitempty"`
	Remember  bool              `json:"remember,omitempty"`
	Slot      cluster.Slot      `json:"slot,omitempty"`
	Permit    *Permit           `json:"permit,omitempty"`
}

// FileEntity is a bound file, as in FileState.
type FileEntity struct {
	Name        cluster.FileName   `json:"name"`
	Lock        cluster.LockName   `json:"lock"`
	Inode       uint64             `json:"inode"`
	Generation  cluster.Generation `json:"generation"`
	Start       int64              `json:"start"`
	End         int64              `json:"end"`
	LastOffset  int64              `json:"last_offset"`
	LastLength  int64              `json:"last_length"`
	LastCRC     uint32             `json:"last_crc32c"`
	LastLSN     cluster.LSN        `json:"last_lsn"`
	Quarantined bool               `json:"quarantined"`
	Reason      string             `json:"reason"`
	Since       cluster.LSN        `json:"since,omitempty"`
	Sealed      bool               `json:"sealed,omitempty"`
	Lost        []LostAppends      `json:"lost,omitempty"`
}

// ClientState is a client without its receipts.
type ClientState struct {
	ID       cluster.ClientID  `json:"client_id"`
	Nonce    Hex               `json:"nonce"`
	LowWater cluster.RequestID `json:"low_water"`
	Dropped  cluster.RequestID `json:"dropped"`
	Identity string            `json:"identity,omitempty"` // that the client, and what it holds, belongs to
}

// ReceiptState is the receipt of a processed request.
type ReceiptState struct {
	ClientID   cluster.ClientID   `json:"client_id"`
	RequestID  cluster.RequestID  `json:"request_id"`
	Kind       Kind               `json:"kind"`
	Status     string             `json:"status"` // for people; follows from Kind
	Hash       Hex                `json:"hash"`
	LSN        cluster.LSN        `json:"lsn"`
	Epoch      cluster.Epoch      `json:"epoch"`
	Lock       cluster.LockName   `json:"lock"`
	Token      cluster.Token      `json:"token"`
	File       cluster.FileName   `json:"file"`
	Generation cluster.Generation `json:"generation"`
	Offset     int64              `json:"offset"`
	Length     int64              `json:"length"`
	CRC        uint32             `json:"crc32c"`
}

// Span is a duration that is encoded in JSON as Go writes it, or as "forever" for WaitForever.
type Span time.Duration

// MarshalText implements encoding.TextMarshaler.
func (s Span) MarshalText() ([]byte, error) {
	if time.Duration(s) == WaitForever {
		return []byte("forever"), nil
	}
	return []byte(time.Duration(s).String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Span) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*s = Span(WaitForever)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

// Hex is a number that is encoded in JSON as 16 hexadecimal digits: readers that keep
// numbers as floats would lose bits of it.
type Hex uint64

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(h)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*h = Hex(n)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	kind, ok := ParseKind(string(text))
	if !ok {
		return fmt.Errorf("%w %q", ErrUnknownKind, text)
	}
	*k = kind
	return nil
}

// exportHeld returns the lock with its grant and without its waiters.
func (l *lock) exportHeld() *LockState {
	s := &struct {
		LockState
		grant GrantState // with it, for one allocation instead of two
	}{
		LockState{Name: l.name, Waiters: []WaiterState{}},
		GrantState{
			Token: l.token, Epoch: l.epoch, ClientID: l.client.id, RequestID: l.request,
			TTL: Span(l.ttl), Mode: l.mode, Holder: l.holder, SinceMS: l.since,
			MaxHold: Span(l.maxHold), Heartbeat: l.heartbeat, Remember: l.remember, Permit: l.permit.export(),
		},
	}
	if x := l.grant; x != nil {
		s.grant.Metadata, s.grant.Slot = x.metadata, x.slot
		if a := x.ask; a != nil {
			s.grant.Ask = &AskState{LSN: a.LSN, Grace: Span(a.Grace), Actor: a.Actor, Reason: a.Reason}
		}
	}
	s.Grant = &s.grant
	return &s.LockState
}

func (w *waiter) export() WaiterState {
	return WaiterState{
		LSN: w.lsn, Epoch: w.epoch, ClientID: w.client.id, RequestID: w.request, Hash: Hex(w.hash),
		TTL: Span(w.ttl), Wait: Span(w.wait), Mode: w.mode, Holder: w.holder, SinceMS: w.since, Metadata: w.metadata,
		MaxHold: Span(w.maxHold), Heartbeat: w.heartbeat, Remember: w.remember, Slot: w.slot, Permit: w.permit.export(),
	}
}

func (c *client) export() *ClientState {
	return &ClientState{ID: c.id, Nonce: Hex(c.nonce), LowWater: c.lowWater, Dropped: c.dropped, Identity: c.owner()}
}

func (f *file) export() *FileEntity {
	return &FileEntity{
		Name: f.name, Lock: f.Lock, Inode: f.Inode, Generation: f.Generation, Start: f.Start, End: f.End,
		LastOffset: f.LastOffset, LastLength: f.LastLength, LastCRC: f.LastCRC, LastLSN: f.LastLSN,
		Quarantined: f.Quarantined, Reason: f.Reason, Since: f.Since, Sealed: f.Sealed, Lost: f.Lost.export(),
	}
}

func (rc *receipt) export(id cluster.ClientID) *ReceiptState {
	out := rc.outcome(id)
	return &ReceiptState{
		ClientID: id, RequestID: rc.request, Kind: rc.kind, Status: out.Status.String(), Hash: Hex(rc.hash),
		LSN: rc.lsn, Epoch: rc.epoch, Lock: rc.lock, Token: rc.token,
		File: out.File, Generation: out.Generation, Offset: out.Offset, Length: out.Length, CRC: out.CRC,
	}
}

// Exporter returns the state that a table had when the export began, a few
// entities at a time, while the table goes on changing. Several may be under way.
//
// It walks the table in order. What it has not reached yet and is about to change
// is saved with it first, so an Apply costs no more than the entities it changes.
// Waiters and receipts never change: they come and go, and the LSN of the record that
// made them decides whether they belong to the state. Clients, files and the extras of
// grants carry the LSN of their last change while an export is under way.
//
// An exporter that is given up has to be closed. Only the table's owner may use it.
type Exporter struct {
	t    *Table
	at   cluster.LSN
	hash uint64

	// What was returned: everything of the earlier phases, and of this one
	// everything up to these.
	phase   phase
	client  cluster.ClientID
	request cluster.RequestID
	file    cluster.FileName
	lock    cluster.LockName
	holder  cluster.Token // of lock; allHolders when there are no more
	place   *waiter       // the next one of lock; nil when the others come later than the export
	past    past          // as it was: it is small
	piece   int           // of past
	level   level         // as it was
	members *members      // as it was
	owned   *owned        // as it was
	mark    cluster.LSN   // of the last mark: they are walked in order of their records

	receipts []Entity // saved, and not returned yet
	others   []Entity
}

// phase is what an exporter walks over. Receipts come first, because a checkpoint's
// state names their sum; clients before what they hold, so that a restore need not wait.
type phase uint8

const (
	exportReceipts phase = iota
	exportClients
	exportFiles
	exportLocks
	exportPast
	exportLevel
	exportMembers
	exportOwn
	exportMarks
	exportDone
)

// BeginExport begins an export of the present state.
func (t *Table) BeginExport() *Exporter {
	x := &Exporter{t: t, at: t.lsn, hash: t.hash, past: t.past.clone(), level: t.level, members: t.members, owned: t.owned}
	t.exports = append(t.exports, x)
	return x
}

// Exporting returns the number of exports under way.
func (t *Table) Exporting() int { return len(t.exports) }

// Hash returns the hash of the exported state.
func (x *Exporter) Hash() uint64 { return x.hash }

// Close ends the export. It may be called again.
func (x *Exporter) Close() {
	x.t.exports = slices.DeleteFunc(x.t.exports, func(other *Exporter) bool { return other == x })
	x.phase, x.place, x.receipts, x.others, x.past = exportDone, nil, nil, nil, past{}
}

// Export iterates over the state. The table must not change meanwhile.
func (t *Table) Export() iter.Seq[Entity] {
	return func(yield func(Entity) bool) {
		x := t.BeginExport()
		defer x.Close()
		var buf []Entity
		for more := true; more; {
			buf, more = x.Next(exportStep, buf[:0])
			for _, e := range buf {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// allHolders is above the tokens of all holders.
const allHolders = ^cluster.Token(0)

// exportStep is how much Export asks for at a time.
const exportStep = 256

// Next appends the next entities to to: first receipts, then clients, files, locks, and what
// is remembered of ended bindings. It visits about n entities, so that its time is bounded.
// more is false if these were the last ones; the export has ended then.
//
// A lock with many holders or a long queue comes in several pieces, and what was saved comes
// out of order.
func (x *Exporter) Next(n int, to []Entity) (_ []Entity, more bool) {
	saved := &x.others
	if x.phase == exportReceipts {
		saved = &x.receipts
	}
	took := min(n, len(*saved))
	to = append(to, (*saved)[:took]...)
	clear((*saved)[:took])
	if *saved = (*saved)[took:]; len(*saved) == 0 {
		*saved = nil
	}
	for n -= took; n > 0 && x.phase != exportDone; {
		if to, n = x.walk(to, n); n > 0 {
			x.phase++
			x.client = ""
		}
	}
	if x.phase == exportDone && len(x.others) == 0 {
		x.Close()
		return to, false
	}
	return to, true
}

// walk goes on in its phase. It returns what is left of n, 0 when there may be more.
func (x *Exporter) walk(to []Entity, n int) ([]Entity, int) {
	switch x.phase {
	case exportReceipts:
		return x.walkReceipts(to, n)
	case exportClients:
		for id := range x.t.clientIDs.after(x.client) {
			if n == 0 {
				return to, 0
			}
			n--
			x.client = id
			if c := x.t.clients.get(id); c.changed <= x.at {
				to = append(to, Entity{Client: c.export()})
			}
		}
	case exportFiles:
		for name := range x.t.fileNames.after(x.file) {
			if n == 0 {
				return to, 0
			}
			n--
			x.file = name
			if f := x.t.files[name]; f.changed <= x.at {
				to = append(to, Entity{File: f.export()})
			}
		}
	case exportLocks:
		return x.walkLocks(to, n)
	case exportPast:
		for ; n > 0 && !x.past.none(); n-- {
			e, ok := x.past.entity(x.piece)
			if !ok {
				break
			}
			x.piece++
			to = append(to, e)
		}
	case exportLevel:
		if x.level != (level{}) {
			to = append(to, Entity{Level: x.level.export()})
			x.level = level{}
			n--
		}
	case exportMembers:
		if x.members != nil {
			to = append(to, Entity{Members: &x.members.list})
			x.members = nil
			n--
		}
	case exportOwn:
		if x.owned != nil {
			to = append(to, Entity{Own: x.owned.own})
			x.owned = nil
			n--
		}
	case exportMarks:
		return x.walkMarks(to, n)
	}
	return to, n
}

func (x *Exporter) walkReceipts(to []Entity, n int) ([]Entity, int) {
	if c := x.t.clients.get(x.client); c != nil { // the one it stopped at
		to, n = x.walkClient(to, n, c)
	}
	for id := range x.t.clientIDs.after(x.client) {
		if n == 0 {
			return to, 0
		}
		n--
		x.client, x.request = id, 0
		to, n = x.walkClient(to, n, x.t.clients.get(id))
	}
	return to, n
}

func (x *Exporter) walkClient(to []Entity, n int, c *client) ([]Entity, int) {
	i, _ := c.find(x.request + 1)
	for ; i < len(c.receipts) && n > 0; i++ {
		n--
		x.request = c.receipts[i].request
		if c.receipts[i].lsn <= x.at {
			to = append(to, Entity{Receipt: c.receipts[i].export(c.id)})
		}
	}
	return to, n
}

func (x *Exporter) walkLocks(to []Entity, n int) ([]Entity, int) {
	if l := x.t.locks.get(x.lock); l != nil {
		to, n = x.walkHolders(to, n, l)
	}
	if n > 0 && x.place != nil {
		s := &LockState{Name: x.lock}
		if n = x.walkQueue(s, n); len(s.Waiters) > 0 {
			to = append(to, Entity{Lock: s})
		}
	}
	for name := range x.t.lockNames.after(x.lock) {
		if n == 0 {
			return to, 0
		}
		n--
		l := x.t.locks.get(name)
		x.lock, x.holder, x.place = name, allHolders, l.head
		var s *LockState
		if l.sharing == nil && l.token != 0 && l.changedAt() <= x.at {
			s = l.exportHeld()
		} else {
			s = &LockState{Name: name}
		}
		if sh := l.sharing; sh != nil {
			if x.holder = 0; sh.phase <= x.at {
				s.Phase = sh.phase
			}
			if to, n = x.walkHolders(to, n, l); n == 0 && s.Phase == 0 {
				return to, 0
			}
		}
		if n = x.walkQueue(s, n); s.Grant != nil || len(s.Waiters) > 0 || s.Phase != 0 {
			to = append(to, Entity{Lock: s})
		}
	}
	return to, n
}

// walkHolders appends the next holders of a shared lock.
func (x *Exporter) walkHolders(to []Entity, n int, l *lock) ([]Entity, int) {
	if x.holder == allHolders {
		return to, n
	}
	for g := range l.grants(x.holder) {
		if n == 0 {
			return to, 0
		}
		n--
		x.holder = g.token
		if g.changedAt() <= x.at {
			to = append(to, Entity{Lock: g.exportHeld()})
		}
	}
	x.holder = allHolders
	return to, n
}

// walkQueue adds the next waiters of a lock to s. Those that came after the export began are
// after all others.
func (x *Exporter) walkQueue(s *LockState, n int) int {
	for ; n > 0 && x.place != nil && x.place.lsn <= x.at; n-- {
		s.Waiters = append(s.Waiters, x.place.export())
		x.place = x.place.next
	}
	if x.place != nil && x.place.lsn > x.at {
		x.place = nil
	}
	return n
}

// stamp returns the LSN of the record being applied while an export is under way, else 0.
func (t *Table) stamp() cluster.LSN {
	if len(t.exports) == 0 {
		return 0
	}
	return t.lsn + 1
}

// The functions below are called before a change: they save what it removes with every
// exporter that still needs it.

func (t *Table) leavesReceipt(c *client, rc *receipt) {
	for _, x := range t.exports {
		passed := x.phase != exportReceipts || c.id < x.client || c.id == x.client && rc.request <= x.request
		if !passed && rc.lsn <= x.at {
			x.receipts = append(x.receipts, Entity{Receipt: rc.export(c.id)})
		}
	}
}

func (t *Table) changesClient(c *client) {
	for _, x := range t.exports {
		passed := x.phase > exportClients || x.phase == exportClients && c.id <= x.client
		if !passed && c.changed <= x.at {
			x.others = append(x.others, Entity{Client: c.export()})
		}
	}
	c.changed = max(c.changed, t.stamp())
}

func (t *Table) changesFile(f *file) {
	for _, x := range t.exports {
		passed := x.phase > exportFiles || x.phase == exportFiles && f.name <= x.file
		if !passed && f.changed <= x.at {
			x.others = append(x.others, Entity{File: f.export()})
		}
	}
	f.changed = max(f.changed, t.stamp())
}

// changedAt returns the LSN of the last change of the live grant that matters to an export
// under way.
func (l *lock) changedAt() cluster.LSN {
	at := cluster.LSN(l.token)
	if l.grant != nil {
		at = max(at, l.grant.changed)
	}
	return at
}

// leavesGrant is also called before a change of a grant that stays.
func (t *Table) leavesGrant(l *lock) {
	for _, x := range t.exports {
		passed := x.phase > exportLocks ||
			x.phase == exportLocks && (l.name < x.lock || l.name == x.lock && l.token <= x.holder)
		if !passed && l.changedAt() <= x.at {
			x.others = append(x.others, Entity{Lock: l.exportHeld()})
		}
	}
}

func (t *Table) leavesPhase(l *lock) {
	for _, x := range t.exports {
		passed := x.phase > exportLocks || x.phase == exportLocks && l.name <= x.lock
		if at := l.sharing.phase; !passed && at <= x.at {
			x.others = append(x.others, Entity{Lock: &LockState{Name: l.name, Phase: at, Waiters: []WaiterState{}}})
		}
	}
}

func (t *Table) leavesWaiter(w *waiter) {
	for _, x := range t.exports {
		here := x.phase == exportLocks && w.lock.name == x.lock
		passed := x.phase > exportLocks || x.phase == exportLocks && w.lock.name < x.lock ||
			here && (x.place == nil || w.lsn < x.place.lsn)
		if !passed && w.lsn <= x.at {
			x.others = append(x.others, Entity{Lock: &LockState{Name: w.lock.name, Waiters: []WaiterState{w.export()}}})
		}
		if x.place == w {
			x.place = w.next
		}
	}
}

// Restore builds the table at lsn from exported entities, in any order. The result has
// passed Check. It returns an error that wraps ErrBadState if they do not make a table, or
// the first error that entities yields.
func Restore(lsn cluster.LSN, entities iter.Seq2[Entity, error]) (*Table, error) {
	rs := NewRestorer(lsn)
	for e, err := range entities {
		if err != nil {
			return nil, fmt.Errorf("restore table at LSN %d: %w", lsn, err)
		}
		if err := rs.Add(e); err != nil {
			return nil, err
		}
	}
	return rs.Table()
}

// Restorer is Restore for entities that are added one by one. After an error it must not be
// used any more.
type Restorer struct {
	t       *Table
	early   []Entity // came before their clients
	held    []*lock
	waiters []waiting
	phases  []*LockState
}

// NewRestorer returns a Restorer of a table at lsn.
func NewRestorer(lsn cluster.LSN) *Restorer {
	rs := &Restorer{t: New()}
	rs.t.lsn = lsn
	return rs
}

// Add adds one entity. It returns an error that wraps ErrBadState if it does not fit.
func (rs *Restorer) Add(e Entity) error { return rs.failed(rs.add(e)) }

// Table returns the table of all that was added. It has passed Check. It is the last call.
func (rs *Restorer) Table() (*Table, error) {
	if err := rs.finish(); err != nil {
		return nil, rs.failed(err)
	}
	return rs.t, nil
}

func (rs *Restorer) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("restore table at LSN %d: %w: %w", rs.t.lsn, ErrBadState, err)
}

// waiting is a waiter of a lock.
type waiting struct {
	lock cluster.LockName
	WaiterState
}

func (rs *Restorer) add(e Entity) error {
	set := 0
	for _, is := range [...]bool{e.Lock != nil, e.File != nil, e.Client != nil, e.Receipt != nil, e.Past != nil, e.Level != nil, e.Members != nil, e.Mark != nil, e.Own != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("an entity has %d parts", set)
	case e.File != nil:
		return rs.t.importFile(e.File)
	case e.Client != nil:
		return rs.t.importClient(e.Client)
	case e.Past != nil:
		return rs.t.importPast(e.Past)
	case e.Level != nil:
		return rs.t.importLevel(e.Level)
	case e.Members != nil:
		return rs.t.importMembers(e.Members)
	case e.Own != nil:
		return rs.t.importOwn(e.Own)
	case e.Mark != nil:
		return rs.t.importMark(e.Mark)
	case rs.isEarly(e):
		rs.early = append(rs.early, e)
		return nil
	case e.Lock != nil:
		return rs.addLock(e.Lock)
	default:
		return rs.t.importReceipt(e.Receipt)
	}
}

func (rs *Restorer) isEarly(e Entity) bool {
	switch {
	case e.Lock != nil && e.Lock.Grant != nil:
		return rs.t.clients.get(e.Lock.Grant.ClientID) == nil
	case e.Receipt != nil:
		return rs.t.clients.get(e.Receipt.ClientID) == nil
	}
	return false
}

// addLock adds the grant. The waiters of a lock may come in several parts, so finish adds them.
func (rs *Restorer) addLock(s *LockState) error {
	for _, w := range s.Waiters {
		rs.waiters = append(rs.waiters, waiting{s.Name, w})
	}
	if s.Phase != 0 {
		rs.phases = append(rs.phases, s)
	}
	if s.Grant == nil {
		if len(s.Waiters) == 0 && s.Phase == 0 {
			return fmt.Errorf("lock %q has neither holder nor waiters", s.Name)
		}
		return nil
	}
	l, err := rs.t.importGrant(s.Name, s.Grant)
	if err == nil {
		rs.held = append(rs.held, l)
	}
	return err
}

// finish makes the queues and gives the clients their grants.
func (rs *Restorer) finish() error {
	for _, e := range rs.early {
		var err error
		if e.Lock != nil {
			err = rs.addLock(e.Lock)
		} else {
			err = rs.t.importReceipt(e.Receipt)
		}
		if err != nil {
			return err
		}
	}
	rs.t.relink(rs.held)
	slices.SortFunc(rs.waiters, func(a, b waiting) int { return cmp.Compare(a.LSN, b.LSN) })
	for i := range rs.waiters {
		if err := rs.t.importWaiter(&rs.waiters[i]); err != nil {
			return err
		}
	}
	for _, s := range rs.phases {
		l := rs.t.locks.get(s.Name)
		if l == nil || l.sharing == nil || l.sharing.phase != 0 {
			return fmt.Errorf("lock %q: a phase comes twice, or without waiters", s.Name)
		}
		rs.t.setPhase(l, s.Phase)
		rs.t.owed.insert(l.name)
	}
	return rs.t.Check()
}

func (t *Table) importGrant(name cluster.LockName, g *GrantState) (*lock, error) {
	if l := t.locks.get(name); l != nil && l.token != 0 && (g.Mode != ModeShared || l.exclusive() || l.grantWithToken(g.Token) != nil) {
		return nil, fmt.Errorf("a holder of lock %q comes twice, or with others and not in shared mode", name)
	}
	c := t.clients.get(g.ClientID)
	if c == nil || g.Token == 0 || !validHolder(g.Holder) {
		return nil, fmt.Errorf("lock %q: unknown client %q, or a bad token %d or holder", name, g.ClientID, g.Token)
	}
	of := t.lockFor(name)
	l := t.slot(of, g.Token)
	l.token, l.request, l.since, l.client = g.Token, g.RequestID, g.SinceMS, c
	if err := t.importExtra(l, g); err != nil {
		return nil, err
	}
	if g.MaxHold < 0 {
		return nil, fmt.Errorf("lock %q: max hold %v", name, time.Duration(g.MaxHold))
	}
	l.grantParams = t.share(c, grantParams{
		epoch: g.Epoch, ttl: time.Duration(g.TTL), holder: g.Holder, mode: g.Mode, maxHold: time.Duration(g.MaxHold), heartbeat: g.Heartbeat, remember: g.Remember, permit: importPermit(g.Permit),
	})
	of.takes(l)
	t.hash += t.sum(l.appendGrant)
	return l, nil
}

// importExtra adds the extras of a grant.
func (t *Table) importExtra(l *lock, g *GrantState) error {
	if err := validMetadata(g.Metadata); err != nil {
		return fmt.Errorf("lock %q: %w", l.name, err)
	}
	if g.Metadata != "" {
		t.extrasOf(l).metadata = g.Metadata
	}
	if err := importSlot(g.Slot); err != nil {
		return fmt.Errorf("lock %q: %w", l.name, err)
	}
	if g.Slot != "" {
		t.extrasOf(l).slot = g.Slot
	}
	a := g.Ask
	if a == nil {
		return nil
	}
	if a.Grace <= 0 || !validText(a.Actor) || !validText(a.Reason) {
		return fmt.Errorf("lock %q: its ask has grace %v, or a bad actor or reason", l.name, time.Duration(a.Grace))
	}
	ask := &Ask{
		Lock: l.name, Token: l.token, LSN: a.LSN, Grace: time.Duration(a.Grace), Actor: a.Actor, Reason: a.Reason,
		Request: l.request, Remaining: remainingUnknown,
	}
	t.extrasOf(l).ask = ask
	t.noteAsk(ask)
	return nil
}

func (t *Table) importWaiter(s *waiting) error {
	c := t.clients.get(s.ClientID)
	if c == nil || c.waiter(s.RequestID) != nil || !validHolder(s.Holder) || validMetadata(s.Metadata) != nil || s.MaxHold < 0 || importSlot(s.Slot) != nil {
		return fmt.Errorf("lock %q: unknown client %q, or its request %d waits twice or is bad", s.lock, s.ClientID, s.RequestID)
	}
	l := t.lockFor(s.lock)
	w := &waiter{
		lock: l, client: c, request: s.RequestID, hash: uint64(s.Hash), lsn: s.LSN, wait: time.Duration(s.Wait), since: s.SinceMS, metadata: s.Metadata, slot: s.Slot,
		grantParams: t.share(c, grantParams{
			epoch: s.Epoch, ttl: time.Duration(s.TTL), holder: s.Holder, mode: s.Mode, maxHold: time.Duration(s.MaxHold), heartbeat: s.Heartbeat, remember: s.Remember, permit: importPermit(s.Permit),
		}),
	}
	t.push(w)
	c.addWaiter(w)
	t.tie(c)
	t.hash += t.sum(w.appendTo)
	if l.due() {
		t.owed.insert(l.name)
	}
	return nil
}

func validHolder(h Holder) bool { return validText(h.Host) && validText(h.Command) && validPID(h.PID) }

func (t *Table) importFile(s *FileEntity) error {
	if _, ok := t.inodes[s.Inode]; ok || t.files[s.Name] != nil {
		return fmt.Errorf("file %q or its inode %d comes twice", s.Name, s.Inode)
	}
	if err := s.Lock.Validate(); err != nil {
		return err
	}
	lost, err := importLost(s.Name, s.Lost)
	if err != nil {
		return err
	}
	t.addFile(&file{name: s.Name, FileState: FileState{
		Lock: s.Lock, Inode: s.Inode, Generation: s.Generation, Start: s.Start, End: s.End,
		LastOffset: s.LastOffset, LastLength: s.LastLength, LastCRC: s.LastCRC, LastLSN: s.LastLSN,
		Quarantined: s.Quarantined, Reason: s.Reason, Since: s.Since, Sealed: s.Sealed, Lost: lost,
	}})
	return nil
}

func (t *Table) importClient(s *ClientState) error {
	if t.clients.get(s.ID) != nil || s.Nonce != 0 && t.nonces.get(uint64(s.Nonce)) != nil {
		return fmt.Errorf("client %q or its nonce comes twice", s.ID)
	}
	if err := s.ID.Validate(); err != nil {
		return err
	}
	if err := validIdentity(s.Identity); err != nil {
		return fmt.Errorf("client %q: %w", s.ID, err)
	}
	c := &client{Presence: Presence{id: s.ID}, nonce: uint64(s.Nonce), lowWater: s.LowWater, dropped: s.Dropped}
	c.setOwner(s.Identity)
	t.addClient(c)
	return nil
}

func (t *Table) importReceipt(s *ReceiptState) error {
	c := t.clients.get(s.ClientID)
	if c == nil {
		return fmt.Errorf("receipt %d of unknown client %q", s.RequestID, s.ClientID)
	}
	rc := receipt{
		request: s.RequestID, hash: uint64(s.Hash), lsn: s.LSN, epoch: s.Epoch,
		token: s.Token, lock: s.Lock, kind: s.Kind,
	}
	if s.File != "" {
		rc.file = &fileReceipt{name: s.File, generation: s.Generation, offset: s.Offset, length: s.Length, crc: s.CRC}
	}
	i, found := c.find(rc.request)
	if found {
		return fmt.Errorf("receipt %d of client %q comes twice", s.RequestID, s.ClientID)
	}
	c.receipts = slices.Insert(c.receipts, i, rc)
	t.hash += t.sumReceipt(c, &rc)
	return nil
}
