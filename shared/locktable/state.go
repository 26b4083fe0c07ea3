// SPDX-License-Identifier: Apache-2.0

package locktable

import (
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
}

// LockState is a lock with a holder or waiters. Locks that only have files are
// made from these.
type LockState struct {
	Name    cluster.LockName `json:"name"`
	Grant   *GrantState      `json:"grant"` // null: nobody holds it
	Waiters []WaiterState    `json:"waiters"`
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

// Export iterates over the state: locks, files and clients, each in order of
// their names, then receipts in order of client and request. The table must not
// change meanwhile.
func (t *Table) Export() iter.Seq[Entity] {
	return func(yield func(Entity) bool) {
		for name := range t.lockNames.all() {
			if l := t.locks[name]; (l.token != 0 || l.head != nil) && !yield(Entity{Lock: l.export()}) {
				return
			}
		}
		for name := range t.fileNames.all() {
			if !yield(Entity{File: t.files[name].export()}) {
				return
			}
		}
		for id := range t.clientIDs.all() {
			c := t.clients[id]
			if !yield(Entity{Client: &ClientState{ID: id, Nonce: Hex(c.nonce), LowWater: c.lowWater, Dropped: c.dropped}}) {
				return
			}
		}
		for id := range t.clientIDs.all() {
			c := t.clients[id]
			for i := range c.receipts {
				if !yield(Entity{Receipt: c.receipts[i].export(id)}) {
					return
				}
			}
		}
	}
}

func (l *lock) export() *LockState {
	s := &LockState{Name: l.name, Waiters: make([]WaiterState, 0, l.queued)}
	if l.token != 0 {
		s.Grant = &GrantState{
			Token: l.token, Epoch: l.epoch, ClientID: l.client.id, RequestID: l.request,
			TTL: Span(l.ttl), Mode: l.mode, Holder: l.holder.value(),
		}
	}
	for w := l.head; w != nil; w = w.next {
		s.Waiters = append(s.Waiters, WaiterState{
			LSN: w.lsn, Epoch: w.epoch, ClientID: w.client.id, RequestID: w.request, Hash: Hex(w.hash),
			TTL: Span(w.ttl), Wait: Span(w.wait), Mode: w.mode, Holder: w.holder.value(),
		})
	}
	return s
}

func (f *file) export() *FileEntity {
	return &FileEntity{
		Name: f.name, Lock: f.Lock, Inode: f.Inode, Generation: f.Generation, Start: f.Start, End: f.End,
		LastOffset: f.LastOffset, LastLength: f.LastLength, LastCRC: f.LastCRC, LastLSN: f.LastLSN,
		Quarantined: f.Quarantined, Reason: f.Reason,
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

// Restore builds the table at lsn from exported entities. Receipts come behind
// the clients they belong to; beyond that any order will do, so that the parts may
// come from several files. The result has passed Check.
func Restore(lsn cluster.LSN, entities iter.Seq2[Entity, error]) (*Table, error) {
	rs := &restorer{t: New()}
	rs.t.lsn = lsn
	for e, err := range entities {
		if err != nil {
			return nil, fmt.Errorf("restore table at LSN %d: %w", lsn, err)
		}
		if err := rs.add(e); err != nil {
			return nil, fmt.Errorf("restore table at LSN %d: %w: %w", lsn, ErrBadState, err)
		}
	}
	if err := rs.finish(); err != nil {
		return nil, fmt.Errorf("restore table at LSN %d: %w: %w", lsn, ErrBadState, err)
	}
	return rs.t, nil
}

// restorer holds what waits for the end of a Restore.
type restorer struct {
	t     *Table
	locks []LockState
}

func (rs *restorer) add(e Entity) error {
	set := 0
	for _, is := range [...]bool{e.Lock != nil, e.File != nil, e.Client != nil, e.Receipt != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("an entity has %d parts", set)
	case e.Lock != nil:
		rs.locks = append(rs.locks, *e.Lock) // their clients come later
		return nil
	case e.File != nil:
		return rs.t.importFile(e.File)
	case e.Client != nil:
		return rs.t.importClient(e.Client)
	default:
		return rs.t.importReceipt(e.Receipt)
	}
}

// finish gives the clients their grants and waiters.
func (rs *restorer) finish() error {
	var held []*lock
	for i := range rs.locks {
		l, err := rs.t.importLock(&rs.locks[i])
		if err != nil {
			return err
		}
		if l.token != 0 {
			held = append(held, l)
		}
	}
	relink(held)
	for _, l := range held {
		rs.t.hash += rs.t.sum(l.appendGrant)
	}
	return rs.t.Check()
}

func (t *Table) importLock(s *LockState) (*lock, error) {
	if l := t.locks[s.Name]; l != nil && (l.token != 0 || l.head != nil) {
		return nil, fmt.Errorf("lock %q comes twice", s.Name)
	}
	l := t.lockFor(s.Name)
	if g := s.Grant; g != nil {
		c := t.clients[g.ClientID]
		if c == nil || g.Token == 0 || !validHolder(g.Holder) {
			return nil, fmt.Errorf("lock %q: unknown client %q, or a bad token %d or holder", s.Name, g.ClientID, g.Token)
		}
		l.token, l.epoch, l.request, l.client = g.Token, g.Epoch, g.RequestID, c
		l.ttl, l.mode, l.holder = time.Duration(g.TTL), g.Mode, c.share(g.Holder)
	}
	for _, ws := range s.Waiters {
		c := t.clients[ws.ClientID]
		if c == nil || c.waiter(ws.RequestID) != nil || !validHolder(ws.Holder) {
			return nil, fmt.Errorf("lock %q: unknown client %q, or its request %d waits twice or is bad", s.Name, ws.ClientID, ws.RequestID)
		}
		w := &waiter{
			lock: l, client: c, request: ws.RequestID, hash: uint64(ws.Hash), lsn: ws.LSN, epoch: ws.Epoch,
			ttl: time.Duration(ws.TTL), wait: time.Duration(ws.Wait), mode: ws.Mode, holder: c.share(ws.Holder),
		}
		l.push(w)
		c.addWaiter(w)
		t.hash += t.sum(w.appendTo)
	}
	if l.token == 0 && l.head != nil {
		t.owed.insert(l.name)
	}
	return l, nil
}

func validHolder(h Holder) bool { return validText(h.Host) && validText(h.Command) && validPID(h.PID) }

func (t *Table) importFile(s *FileEntity) error {
	if _, ok := t.inodes[s.Inode]; ok || t.files[s.Name] != nil {
		return fmt.Errorf("file %q or its inode %d comes twice", s.Name, s.Inode)
	}
	if err := s.Lock.Validate(); err != nil {
		return err
	}
	t.addFile(&file{name: s.Name, FileState: FileState{
		Lock: s.Lock, Inode: s.Inode, Generation: s.Generation, Start: s.Start, End: s.End,
		LastOffset: s.LastOffset, LastLength: s.LastLength, LastCRC: s.LastCRC, LastLSN: s.LastLSN,
		Quarantined: s.Quarantined, Reason: s.Reason,
	}})
	return nil
}

func (t *Table) importClient(s *ClientState) error {
	if t.clients[s.ID] != nil || s.Nonce != 0 && t.nonces[uint64(s.Nonce)] != nil {
		return fmt.Errorf("client %q or its nonce comes twice", s.ID)
	}
	if err := s.ID.Validate(); err != nil {
		return err
	}
	t.addClient(&client{id: s.ID, nonce: uint64(s.Nonce), lowWater: s.LowWater, dropped: s.Dropped})
	return nil
}

func (t *Table) importReceipt(s *ReceiptState) error {
	c := t.clients[s.ClientID]
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
