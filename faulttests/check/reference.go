// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// reference is what a log may say, record by record, in its own simple way: it
// was written from the promises, independently of the service's table. It
// continues after a violation as if the record had been right.
type reference struct {
	lsn     cluster.LSN
	last    locktable.Kind // of the record there
	epoch   cluster.Epoch
	server  cluster.ServerID          // that is primary in epoch
	level   uint32                    // of the cluster, 0 before it was raised
	raised  int                       // how often that was
	permits int                       // grants of them
	members uint64                    // the version of the list of servers, 0 before the log has one
	servers map[cluster.ServerID]bool // that the log ever listed; false of those that left
	locks   map[cluster.LockName]*refLock
	files   map[cluster.FileName]*refFile
	inodes  map[uint64]cluster.FileName
	clients map[cluster.ClientID]*refClient
	nonces  map[uint64]cluster.ClientID
	marks   map[cluster.LockName]cluster.Token // the last tokens of locks that remember theirs; 0 = in doubt
	slots   map[cluster.LockName]cluster.Slot  // the highest that are done
	cell    *division                          // of a site; nil = the log has all names

	found func(i Number, format string, args ...any)
	// counts are how often each invariant was looked at.
	counts [invariantCount + 1]int
}

// request names one request of one client.
type request struct {
	client cluster.ClientID
	id     cluster.RequestID
}

type refClient struct {
	mark cluster.RequestID // everything below is forgotten
	done map[cluster.RequestID]cluster.LSN
}

type refFile struct {
	lock       cluster.LockName
	inode      uint64
	generation cluster.Generation
	start, end int64
	sum        uint32 // CRC-32C of what was appended from start on
	token      cluster.Token
	stopped    bool
	sealed     bool
	marks      []fileMark // the last ones, ascending
}

// fileMark is the sum of a file's bytes from its start to an end.
type fileMark struct {
	end int64
	sum uint32
}

// markLimit is how many ends of appends are remembered of a file: what a
// server may have committed and not written yet when it died.
const markLimit = 4096

func newReference(found func(i Number, format string, args ...any)) *reference {
	return &reference{
		locks: map[cluster.LockName]*refLock{}, files: map[cluster.FileName]*refFile{}, inodes: map[uint64]cluster.FileName{},
		clients: map[cluster.ClientID]*refClient{}, nonces: map[uint64]cluster.ClientID{}, servers: map[cluster.ServerID]bool{}, marks: map[cluster.LockName]cluster.Token{}, slots: map[cluster.LockName]cluster.Slot{}, found: found,
	}
}

// see judges the next record and books what it does.
func (x *reference) see(r *locktable.Record) {
	bad := func(i Number, format string, args ...any) {
		x.found(i, "record %d (%v of epoch %d): %s", r.LSN, r.Kind, r.Epoch, fmt.Sprintf(format, args...))
	}
	x.counts[I9]++
	if r.LSN != x.lsn+1 {
		bad(I3, "it follows LSN %d", x.lsn)
	}
	if r.Epoch < x.epoch {
		bad(I9, "it follows epoch %d", x.epoch)
	}
	if r.Epoch > x.epoch {
		x.epoch, x.server = r.Epoch, 0
	}
	x.lsn, x.last = r.LSN, r.Kind
	x.foreign(r, bad)
	switch r.Kind {
	case locktable.KindOwn:
		x.become(r, bad)
	case locktable.KindTerm:
		if x.server != 0 {
			bad(I9, "servers %d and %d are both primary", x.server, r.Server)
		}
		x.server = r.Server
	case locktable.KindGrant:
		x.grant(r, bad)
	case locktable.KindEnqueue:
		x.enqueue(r, bad)
	case locktable.KindRelease, locktable.KindExpire, locktable.KindBreak:
		x.end(r, bad)
	case locktable.KindMetadata, locktable.KindAsk, locktable.KindDowngrade, locktable.KindExtend:
		x.say(r, bad)
	case locktable.KindSkip:
		if i := x.lock(r.Lock).find(request{r.Client, r.Request}); i >= 0 {
			if slot := x.lock(r.Lock).queue[i].slot; slot == "" || x.slots[r.Lock].Compare(slot) < 0 {
				bad(I1, "%v is told that slot %q of lock %s is done, and %q is", request{r.Client, r.Request}, slot, r.Lock, x.slots[r.Lock])
			}
		}
		x.leave(r, bad)
	case locktable.KindWaitTimeout, locktable.KindCancel:
		x.leave(r, bad)
	case locktable.KindForceClear:
		clear(x.locks)
		for name := range x.marks {
			x.marks[name] = 0
		}
	case locktable.KindOpenClient:
		x.open(r, bad)
	case locktable.KindForgetClient:
		delete(x.clients, r.Client)
	case locktable.KindHandedOver:
	case locktable.KindLevel:
		if r.Level <= x.level {
			bad(I9, "the feature level %d changes to %d", x.level, r.Level)
		}
		x.level = r.Level
		x.raised++
	case locktable.KindMembers:
		x.list(r, bad)
	case locktable.KindForgetMark:
		if _, marked := x.marks[r.Lock]; !marked {
			bad(I1, "lock %s remembers nothing", r.Lock)
		}
		delete(x.marks, r.Lock)
		delete(x.slots, r.Lock)
	default:
		x.file(r, bad)
	}
}

type badFunc = func(i Number, format string, args ...any)

// list judges a list of servers: no version is left out, and no server that left comes back.
func (x *reference) list(r *locktable.Record, bad badFunc) {
	m, err := cluster.ParseMembership(r.Members)
	if err != nil || m.Version != x.members+1 && (x.members != 0 || m.Version != 2) {
		bad(I9, "version %d of the list of servers changes to %d: %v", x.members, m.Version, err)
	}
	x.members = m.Version
	listed := map[cluster.ServerID]bool{}
	for _, id := range m.Servers.IDs() {
		if last, known := x.servers[id]; known && !last {
			bad(I9, "server %d comes back in version %d of the list of servers", id, m.Version)
		}
		listed[id] = true
	}
	for id := range x.servers {
		x.servers[id] = false
	}
	maps.Copy(x.servers, listed)
	x.execute(r, false, bad)
}

func (x *reference) open(r *locktable.Record, bad badFunc) {
	id := cluster.OpenedClientID(r.LSN, r.Mark)
	if old, ok := x.nonces[r.Nonce]; ok && x.clients[old] != nil {
		bad(I7, "nonce %#x opened client %s before", r.Nonce, old)
	}
	x.nonces[r.Nonce] = id
	x.clients[id] = &refClient{done: map[cluster.RequestID]cluster.LSN{}}
}

func (x *reference) wasDone(who request) bool {
	c := x.clients[who.client]
	if c == nil {
		return false
	}
	_, done := c.done[who.id]
	return done
}

// execute books the one time that a request may be executed. What waited may
// have fallen below its client's mark meanwhile.
func (x *reference) execute(r *locktable.Record, waited bool, bad badFunc) {
	if r.Request == 0 || r.Client.Anonymous() {
		return
	}
	x.counts[I7]++
	c := x.clients[r.Client]
	switch {
	case c == nil && r.Client.Opened():
		bad(I7, "client %s is not open", r.Client)
		fallthrough
	case c == nil:
		c = &refClient{done: map[cluster.RequestID]cluster.LSN{}}
		x.clients[r.Client] = c
	}
	if before, done := c.done[r.Request]; done {
		bad(I7, "request %d of client %s was executed at LSN %d", r.Request, r.Client, before)
	}
	if r.Request < c.mark && !waited {
		bad(I7, "request %d of client %s is below its mark %d", r.Request, r.Client, c.mark)
	}
	c.done[r.Request] = r.LSN
	x.raise(r)
}

// raise forgets what a client said it no longer cares about.
func (x *reference) raise(r *locktable.Record) {
	c := x.clients[r.Client]
	if c == nil || r.LowWater <= c.mark {
		return
	}
	c.mark = r.LowWater
	for id := range c.done {
		if id < c.mark {
			delete(c.done, id)
		}
	}
}

func (x *reference) file(r *locktable.Record, bad badFunc) {
	f := x.files[r.File]
	if r.Kind == locktable.KindQuarantine {
		if f == nil || f.generation != r.Generation {
			bad(I5, "file %s of generation %d is not bound", r.File, r.Generation)
			return
		}
		f.stopped = true
		return
	}
	x.counts[I1]++
	if l := x.locks[r.Lock]; l == nil || l.hold(r.Token) == nil || l.hold(r.Token).shared {
		bad(I1, "token %d of lock %s is not live, or shared", r.Token, r.Lock)
	}
	if r.Kind == locktable.KindBind {
		x.bind(r, f, bad)
	} else if f == nil || f.lock != r.Lock {
		bad(I5, "file %s is not bound to lock %s", r.File, r.Lock)
		return
	}
	switch r.Kind {
	case locktable.KindAppend:
		x.append(r, f, bad)
	case locktable.KindSeal:
		if f.stopped || f.sealed || r.Generation != f.generation || r.Offset != f.end {
			bad(I5, "sealed at offset %d of generation %d, file %s is at %+v", r.Offset, r.Generation, r.File, f)
		}
		f.sealed = true
	case locktable.KindAlready:
		if r.Generation != f.generation || r.Offset != f.end {
			bad(I5, "answered as at offset %d of generation %d already, file %s is at %+v", r.Offset, r.Generation, r.File, f)
		}
	case locktable.KindUnbind:
		if f.sealed {
			bad(I5, "file %s is sealed and was unbound", r.File)
		}
		delete(x.inodes, f.inode)
		delete(x.files, r.File)
	case locktable.KindRotate:
		delete(x.inodes, f.inode)
		if r.Generation != f.generation+1 {
			bad(I5, "generation %d of file %s follows %d", r.Generation, r.File, f.generation)
		}
		x.bind(r, nil, bad)
	}
	x.execute(r, false, bad)
}

func (x *reference) bind(r *locktable.Record, before *refFile, bad badFunc) {
	if before != nil {
		bad(I5, "file %s is bound to lock %s already", r.File, before.lock)
	}
	if other, taken := x.inodes[r.Inode]; taken {
		bad(I5, "inode %d of file %s is that of file %s", r.Inode, r.File, other)
	}
	f := &refFile{lock: r.Lock, inode: r.Inode, generation: r.Generation}
	if r.Kind == locktable.KindBind {
		f.start = r.Offset
	}
	f.end = f.start
	x.files[r.File], x.inodes[r.Inode] = f, r.File
}

func (x *reference) append(r *locktable.Record, f *refFile, bad badFunc) {
	x.counts[I5]++
	x.counts[I6]++
	switch {
	case f.stopped:
		bad(I5, "file %s is quarantined", r.File)
	case f.sealed:
		bad(I5, "file %s is sealed", r.File)
	case r.Generation != f.generation || r.Offset != f.end:
		bad(I5, "generation %d, offset %d of file %s, which is at generation %d, offset %d", r.Generation, r.Offset, r.File, f.generation, f.end)
	}
	if got := crc32.Checksum(r.Data, crc32.MakeTable(crc32.Castagnoli)); got != r.CRC || int64(len(r.Data)) != r.Length {
		bad(I5, "it says %d bytes with CRC-32C %08x and carries %d with %08x", r.Length, r.CRC, len(r.Data), got)
	}
	if r.Token < f.token {
		bad(I6, "token %d of file %s, behind %d", r.Token, r.File, f.token)
	}
	f.token, f.end = r.Token, r.Offset+r.Length
	f.sum = crc32.Update(f.sum, crc32.MakeTable(crc32.Castagnoli), r.Data)
	f.marks = append(f.marks, fileMark{f.end, f.sum})
	if len(f.marks) > 2*markLimit {
		f.marks = slices.Delete(f.marks, 0, markLimit)
	}
}

// atTheEnd checks for what a term that ended in good order must not leave. One
// that died may owe a grant, which the next one gives.
func (x *reference) atTheEnd() {
	if x.last != locktable.KindHandedOver {
		return
	}
	for name, l := range x.locks {
		x.counts[I15]++
		if i := l.next(); i >= 0 {
			x.found(I15, "lock %s has %d holders in the end, and it is the turn of %v, who waits for it", name, len(l.holds), l.queue[i].request)
		}
	}
}
