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
}

// LockState is a lock with a holder or waiters, or a part of one: a holder or
// some of the waiters. Locks that only have files are made from these.
type LockState struct {
	Name    cluster.LockName `json:"name"`
	Grant   *GrantState      `json:"grant"` // null: nobody holds it, or another part says who
	Waiters []WaiterState    `json:"waiters"`
	// Phase is the LSN behind which a shared request waits for the next phase; those up to
	// it are owed a grant. 0: none is under way.
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
}

// AskState is the word to a holder that it let go.
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
}

// FileEntity is a bound file.
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
}

// ReceiptState is the outcome of a processed request.
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

// Span is a duration that JSON shows as Go writes it, or as "forever".
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

// Hex is a number that JSON shows as 16 hexadecimal digits: readers that keep
// numbers as floats would spoil it.
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

// exportHeld is the lock with its grant and without its waiters.
func (l *lock) exportHeld() *LockState {
	s := &struct {
		LockState
		grant GrantState // with it, for one allocation instead of two
	}{
		LockState{Name: l.name, Waiters: []WaiterState{}},
		GrantState{
			Token: l.token, Epoch: l.epoch, ClientID: l.client.id, RequestID: l.request,
			TTL: Span(l.ttl), Mode: l.mode, Holder: l.holder, SinceMS: l.since,
			MaxHold: Span(l.maxHold), Heartbeat: l.heartbeat,
		},
	}
	if x := l.grant; x != nil {
		s.grant.Metadata = x.metadata
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
		MaxHold: Span(w.maxHold), Heartbeat: w.heartbeat,
	}
}

func (c *client) export() *ClientState {
	return &ClientState{ID: c.id, Nonce: Hex(c.nonce), LowWater: c.lowWater, Dropped: c.dropped}
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

// Restore builds the table at lsn from exported entities, in any order. It keeps
// aside what comes before the client it belongs to. The result has passed Check.
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

// Restorer is Restore for entities that are handed in as they come. After an error it
// is of no use.
type Restorer struct {
	t       *Table
	early   []Entity // came before their clients
	held    []*lock
	waiters []waiting
	phases  []*LockState
}

// NewRestorer begins a table at lsn.
func NewRestorer(lsn cluster.LSN) *Restorer {
	rs := &Restorer{t: New()}
	rs.t.lsn = lsn
	return rs
}

// Add takes one entity in.
func (rs *Restorer) Add(e Entity) error { return rs.failed(rs.add(e)) }

// Table is the table of all that was added. It has passed Check. It is the last call.
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

// waiting is a place in the queue of a lock.
type waiting struct {
	lock cluster.LockName
	WaiterState
}

func (rs *Restorer) add(e Entity) error {
	set := 0
	for _, is := range [...]bool{e.Lock != nil, e.File != nil, e.Client != nil, e.Receipt != nil, e.Past != nil} {
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

// addLock takes the grant in. The waiters of a lock may come in several parts, so they wait.
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
	relink(rs.held)
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
	if l := t.locks.get(name); l != nil && l.token != 0 && (g.Mode != ModeShared || l.exclusive() || l.under(g.Token) != nil) {
		return nil, fmt.Errorf("a holder of lock %q comes twice, or with others and not in shared mode", name)
	}
	c := t.clients.get(g.ClientID)
	if c == nil || g.Token == 0 || !validHolder(g.Holder) {
		return nil, fmt.Errorf("lock %q: unknown client %q, or a bad token %d or holder", name, g.ClientID, g.Token)
	}
	l := t.slot(t.lockFor(name), g.Token)
	l.token, l.request, l.since, l.client = g.Token, g.RequestID, g.SinceMS, c
	if err := t.importExtra(l, g); err != nil {
		return nil, err
	}
	if g.MaxHold < 0 {
		return nil, fmt.Errorf("lock %q: max hold %v", name, time.Duration(g.MaxHold))
	}
	l.terms = t.share(c, terms{
		epoch: g.Epoch, ttl: time.Duration(g.TTL), holder: g.Holder, mode: g.Mode, maxHold: time.Duration(g.MaxHold), heartbeat: g.Heartbeat,
	})
	t.hash += t.sum(l.appendGrant)
	return l, nil
}

// importExtra takes in what few grants have.
func (t *Table) importExtra(l *lock, g *GrantState) error {
	if err := validMetadata(g.Metadata); err != nil {
		return fmt.Errorf("lock %q: %w", l.name, err)
	}
	if g.Metadata != "" {
		t.extraOf(l).metadata = g.Metadata
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
	t.extraOf(l).ask = ask
	t.noteAsk(ask)
	return nil
}

func (t *Table) importWaiter(s *waiting) error {
	c := t.clients.get(s.ClientID)
	if c == nil || c.waiter(s.RequestID) != nil || !validHolder(s.Holder) || validMetadata(s.Metadata) != nil || s.MaxHold < 0 {
		return fmt.Errorf("lock %q: unknown client %q, or its request %d waits twice or is bad", s.lock, s.ClientID, s.RequestID)
	}
	l := t.lockFor(s.lock)
	w := &waiter{
		lock: l, client: c, request: s.RequestID, hash: uint64(s.Hash), lsn: s.LSN, wait: time.Duration(s.Wait), since: s.SinceMS, metadata: s.Metadata,
		terms: t.share(c, terms{
			epoch: s.Epoch, ttl: time.Duration(s.TTL), holder: s.Holder, mode: s.Mode, maxHold: time.Duration(s.MaxHold), heartbeat: s.Heartbeat,
		}),
	}
	t.push(w)
	c.addWaiter(w)
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
	t.addClient(&client{Presence: Presence{id: s.ID}, nonce: uint64(s.Nonce), lowWater: s.LowWater, dropped: s.Dropped})
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
