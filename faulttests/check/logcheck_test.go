// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/wal"
)

// run is a right run by hand: its records, what clients were told, the file.
type run struct {
	records []locktable.Record
	ledger  *Ledger
	content []byte
	// dead are records behind what the second term adopted from the first.
	dead []locktable.Record
	// checkpoint is the table at an LSN.
	table *locktable.Table
	// splitAt is the adopted end of the second term.
	splitAt cluster.LSN
	// stuck is LogOptions.Stuck.
	stuck time.Duration
}

// teller makes the records of a run, as a primary would.
type teller struct {
	t     *testing.T
	r     *run
	table *locktable.Table
	epoch cluster.Epoch
	now   time.Time
}

func (x *teller) apply(recs []locktable.Record) {
	for i := range recs {
		if err := x.table.Apply(&recs[i]); err != nil {
			x.t.Fatal(err)
		}
	}
	x.r.records = append(x.r.records, recs...)
}

func (x *teller) do(q locktable.Request) locktable.Outcome {
	x.t.Helper()
	q.CRC = crc32.Checksum(q.Data, crc32.MakeTable(crc32.Castagnoli))
	recs, d := x.table.Decide(&q, x.epoch, locktable.FileFacts{Inode: 77}, nil)
	if !d.Pending && d.Outcome.Status != cluster.StatusOK {
		x.t.Fatalf("%v: %+v", q.Op, d.Outcome)
	}
	x.apply(recs)
	x.now = x.now.Add(time.Second)
	return d.Outcome
}

func (x *teller) append(c cluster.ClientID, id cluster.RequestID, token cluster.Token, text string) {
	x.t.Helper()
	o := x.do(locktable.Request{Op: locktable.OpAppend, Client: c, ID: id, LowWater: 1, Lock: "a", Token: token, File: "f", Data: []byte(text)})
	x.r.content = append(x.r.content, text...)
	x.r.ledger.Append(Append{
		Chunk: Chunk{Data: []byte(text)}, File: "f", Lock: "a", Acked: true, Sent: x.now.Add(-time.Second), Answered: x.now.Add(-time.Second / 2),
		Receipt: wire.Receipt{File: "f", Offset: o.Offset, Length: o.Length, CRC32C: o.CRC, LSN: o.LSN, Token: token, Epoch: o.Epoch, Generation: o.Generation},
	})
}

func (x *teller) grant(lock cluster.LockName, token cluster.Token) {
	x.r.ledger.Grant(Grant{Lock: lock, Token: token, Epoch: x.epoch, Holder: command, Sent: x.now.Add(-time.Second), Answered: x.now.Add(-time.Second / 2)})
}

func acquire(c cluster.ClientID, id cluster.RequestID) locktable.Request {
	return locktable.Request{Op: locktable.OpAcquire, Client: c, ID: id, LowWater: 1, Lock: "a", TTL: time.Minute, Wait: locktable.WaitForever, Holder: locktable.Holder{Command: command}}
}

// command is what all clients of a run call themselves.
const command = "worker"

// rightRun has two clients, two terms, a queue over the failover, an expiry.
func rightRun(t *testing.T) *run {
	t.Helper()
	r := &run{ledger: &Ledger{}}
	x := &teller{t: t, r: r, table: locktable.New(), epoch: 1, now: time.Unix(1000, 0)}
	x.apply(x.table.DecideTerm(1, 1, nil))
	alice := x.do(locktable.Request{Op: locktable.OpOpenClient, Nonce: 11}).Client
	bob := x.do(locktable.Request{Op: locktable.OpOpenClient, Nonce: 12}).Client
	first := x.do(acquire(alice, 1)).Token
	x.grant("a", first)
	x.append(alice, 2, first, "one\n")
	x.do(acquire(bob, 1))
	x.append(alice, 3, first, "two\n")
	x.do(acquire("carol", 1))
	r.table, r.splitAt = x.table.Clone(), x.table.LSN()

	dead := x.table.Clone()
	recs, _ := dead.Decide(&locktable.Request{Op: locktable.OpRelease, Client: alice, ID: 4, Lock: "a", Token: first}, 1, locktable.FileFacts{}, nil)
	r.dead = recs

	x.epoch = 2
	x.apply(x.table.DecideTerm(2, 2, nil))
	x.do(locktable.Request{Op: locktable.OpRelease, Client: alice, ID: 4, LowWater: 2, Lock: "a", Token: first})
	second := x.table.LSN().Token()
	x.grant("a", second)
	x.append(bob, 2, second, "three\n")
	x.apply(x.table.DecideExpire("a", second, "", 2, nil))
	x.apply(x.table.DecideExpire("a", x.table.LSN().Token(), "", 2, nil))
	third := x.do(acquire(alice, 5)).Token
	x.grant("a", third)
	x.do(locktable.Request{Op: locktable.OpExtend, Client: alice, ID: 6, LowWater: 3, Lock: "a", Token: third, TTL: 2 * time.Minute})
	x.do(locktable.Request{Op: locktable.OpRelease, Client: alice, ID: 7, LowWater: 3, Lock: "a", Token: third})
	x.apply(x.table.DecideHandover("done", 2, nil))
	return r
}

// write lays the run out as a volume: what term 2 adopted it logged again.
func (r *run) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var first []locktable.Record
	for _, rec := range r.records {
		if rec.Epoch == 1 {
			first = append(first, rec)
		}
	}
	chain := chainOf(first[:min(len(first), int(r.splitAt))])
	writeTerm(t, dir, 0, wal.Position{}, nil)
	writeTerm(t, dir, 1, wal.Position{}, append(slices.Clone(first), r.dead...))
	writeTerm(t, dir, 2, wal.Position{LSN: r.splitAt, Chain: chain}, r.records)
	return dir
}

func chainOf(recs []locktable.Record) (c wal.Chain) {
	for i := range recs {
		c = c.Next(recs[i].AppendHeader(nil))
	}
	return c
}

// writeTerm makes one epoch's directory with one segment of all these records,
// two in a frame.
func writeTerm(t *testing.T, dir string, e cluster.Epoch, end wal.Position, recs []locktable.Record) {
	t.Helper()
	path := filepath.Join(dir, "epochs", fmt.Sprintf("%010d", uint64(e)))
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	fence := make([]byte, 2*startOffset)
	start := fence[startOffset : startOffset+startSize]
	copy(start, startMagic)
	binary.LittleEndian.PutUint64(start[8:], uint64(e))
	binary.LittleEndian.PutUint64(start[32:], uint64(end.LSN))
	binary.LittleEndian.PutUint64(start[40:], uint64(end.Chain))
	binary.LittleEndian.PutUint32(start[startSize-4:], crc32.Checksum(start[:startSize-4], crc32.MakeTable(crc32.Castagnoli)))
	put(t, filepath.Join(path, "fence"), fence)
	if len(recs) == 0 {
		return
	}
	b := wal.AppendSegmentHeader(nil, wal.SegmentHeader{FeatureLevel: 1, Epoch: e, First: 1, Size: 1 << 20})
	binding := xxhash.Sum64(b)
	pad := func() { b = append(b, make([]byte, -len(b)&(wal.BlockSize-1))...) }
	pad()
	var chain wal.Chain
	ordinal := uint32(0)
	for i := 0; i < len(recs); i += 2 {
		var entries []wal.Entry
		for _, rec := range recs[i:min(i+2, len(recs))] {
			entries = append(entries, wal.Entry{Header: rec.AppendHeader(nil), Data: rec.Data, DataLen: len(rec.Data)})
		}
		chain = wal.VerifyChain(chain, entries)
		b = wal.AppendFrame(b, wal.FrameHeader{Kind: wal.FrameRecords, Ordinal: ordinal, Epoch: e, First: cluster.LSN(i + 1), Chain: chain, Binding: binding}, entries)
		pad()
		ordinal++
	}
	put(t, filepath.Join(path, wal.SegmentName(1)), append(b, make([]byte, 2*wal.BlockSize)...))
}

func put(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *run) check(t *testing.T, dir string) (*Report, LogVerdict) {
	t.Helper()
	report := &Report{}
	v, err := CheckLog(LogOptions{Dir: dir, Ledger: r.ledger, File: func(cluster.FileName) ([]byte, error) {
		if r.content == nil {
			return nil, fs.ErrNotExist
		}
		return r.content, nil
	}, Stuck: r.stuck}, report)
	if err != nil {
		t.Fatal(err)
	}
	return report, v
}

func TestLogThatIsRight(t *testing.T) {
	r := rightRun(t)
	report, v := r.check(t, r.write(t))
	if bad := report.Violations(); len(bad) > 0 {
		t.Errorf("violations: %q", bad)
	}
	if v.Records != len(r.records) || v.Told != 6 || v.Files != 1 || v.Started != 3 {
		t.Errorf("%+v of %d records", v, len(r.records))
	}
	// The server may owe the file an append that nobody was told of.
	r.content = []byte("one\ntwo\nth")
	if report, _ := r.check(t, r.write(t)); len(report.Violations()) > 0 {
		t.Errorf("a file that lacks its end: %q", report.Violations())
	}
}

// find returns the n-th record of a kind, from 0.
func (r *run) find(k locktable.Kind, n int) *locktable.Record {
	for i := range r.records {
		if r.records[i].Kind == k {
			if n == 0 {
				return &r.records[i]
			}
			n--
		}
	}
	return nil
}

// TestLogThatIsWrong damages a right run in one way at a time, and wants each
// damage found under its invariant.
func TestLogThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*run)
		want   Number
	}{
		"two holders": {func(r *run) {
			g := *r.find(locktable.KindGrant, 0)
			e := r.find(locktable.KindEnqueue, 0)
			g.LSN, g.Client, g.Request = e.LSN, e.Client, e.Request
			*e = g
		}, I1},
		"a release under an old token":         {func(r *run) { r.find(locktable.KindRelease, 1).Token-- }, I1},
		"an append under an old token":         {func(r *run) { r.find(locktable.KindAppend, 2).Token = r.find(locktable.KindAppend, 0).Token }, I1},
		"tokens of appends fall":               {func(r *run) { r.find(locktable.KindAppend, 2).Token = 1 }, I6},
		"an expiry of nobody's":                {func(r *run) { r.find(locktable.KindExpire, 0).Token++ }, I1},
		"the second in line goes first":        {func(r *run) { swapRequests(r.find(locktable.KindGrant, 1), r.find(locktable.KindGrant, 2)) }, I11},
		"a request runs twice":                 {func(r *run) { r.find(locktable.KindAppend, 1).Request = r.find(locktable.KindAppend, 0).Request }, I7},
		"a request below its mark":             {func(r *run) { rec := r.find(locktable.KindRelease, 1); rec.Request, rec.LowWater = 1, 1 }, I7},
		"a client that is not open":            {func(r *run) { r.find(locktable.KindAppend, 0).Client = "@999" }, I7},
		"a nonce twice":                        {func(r *run) { r.find(locktable.KindOpenClient, 1).Nonce = 11 }, I7},
		"an offset too far":                    {func(r *run) { r.find(locktable.KindAppend, 1).Offset++ }, I5},
		"an offset again":                      {func(r *run) { r.find(locktable.KindAppend, 1).Offset = 0 }, I5},
		"data is not what its sum says":        {func(r *run) { r.find(locktable.KindAppend, 1).CRC++ }, I5},
		"a file of another lock":               {func(r *run) { r.find(locktable.KindAppend, 0).Lock = "b" }, I1},
		"two servers are primary in one epoch": {func(r *run) { *r.find(locktable.KindExpire, 1) = termAt(r.find(locktable.KindExpire, 1), 3) }, I9},
		"an epoch falls":                       {func(r *run) { r.find(locktable.KindAppend, 2).Epoch = 1 }, I9},
		"an answer to a wrong offset":          {func(r *run) { r.ledger.mu.appends[1].Receipt.Offset++ }, I7},
		"an answer with a wrong token":         {func(r *run) { r.ledger.mu.appends[1].Receipt.Token++ }, I7},
		"a grant that is none":                 {func(r *run) { r.ledger.mu.grants[1].Token++ }, I7},
		"a grant in another epoch":             {func(r *run) { r.ledger.mu.grants[1].Epoch++ }, I7},
		"a grant told to another client":       {func(r *run) { r.ledger.mu.grants[1].Holder = "somebody else" }, I7},
		"a refused append is in the log":       {func(r *run) { a := &r.ledger.mu.appends[1]; a.Acked, a.Refused = false, true }, I7},
		"an answer behind the end":             {func(r *run) { r.ledger.mu.appends[2].Receipt.LSN += 100 }, I3},
		"one LSN for two":                      {func(r *run) { r.ledger.mu.appends[1].Receipt.LSN = r.ledger.mu.appends[0].Receipt.LSN }, I7},
		"asked after a later answer": {func(r *run) {
			r.ledger.mu.appends[0].Sent = time.Unix(2000, 0)
			r.ledger.mu.appends[0].Answered = time.Unix(2001, 0)
		}, I9},
		"asked after the next was answered": {func(r *run) {
			after := r.ledger.mu.appends[2].Answered.Add(time.Millisecond)
			r.ledger.mu.grants[1].Sent, r.ledger.mu.grants[1].Answered = after, after
		}, I9},
		"an acknowledged append is not in the log": {func(r *run) { r.ledger.mu.appends[1].Data = []byte("too\n") }, I7},
		"an unanswered append is there twice": {func(r *run) {
			a := r.find(locktable.KindAppend, 0)
			b := r.find(locktable.KindAppend, 1)
			b.Data, b.CRC = a.Data, a.CRC
		}, I7},
		"the file lost a byte":            {func(r *run) { r.content = r.content[1:] }, I5},
		"the file has other bytes":        {func(r *run) { r.content = []byte("One\ntwo\nthree\n") }, I5},
		"the file has bytes behind":       {func(r *run) { r.content = append(r.content, 'x') }, I5},
		"the file is gone":                {func(r *run) { r.content = nil }, I5},
		"a lease gets shorter":            {func(r *run) { r.find(locktable.KindExtend, 0).TTL = time.Minute - 1 }, I4},
		"an extension under an old token": {func(r *run) { r.find(locktable.KindExtend, 0).Token-- }, I1},
		"a waiter is left behind": {func(r *run) {
			i := slices.IndexFunc(r.records, func(x locktable.Record) bool { return x.Kind == locktable.KindExpire })
			last := r.records[i]
			r.records = append(r.records[:i+1], locktable.Record{LSN: last.LSN + 1, Epoch: 2, Kind: locktable.KindHandedOver, Reason: "done"})
		}, I15},
	} {
		t.Run(name, func(t *testing.T) { wantDamage(t, c.damage, c.want) })
	}
}

// wantDamage damages a right run and wants that to be found under an invariant.
func wantDamage(t *testing.T, damage func(*run), want Number) {
	t.Helper()
	r := rightRun(t)
	damage(r)
	report, _ := r.check(t, r.write(t))
	for _, bad := range report.Violations() {
		if strings.HasPrefix(bad, want.String()+": ") {
			return
		}
	}
	t.Errorf("%v is not noticed: %q", want, report.Violations())
}

// TestLeasesThatAreWrong does the same with the times of leases.
func TestLeasesThatAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*run)
		want   Number
	}{
		"a lease ends early":            {func(r *run) { r.lease(0, 59*time.Second) }, I4},
		"a lease ends under its holder": {func(r *run) { r.believe(r.lease(0, time.Minute), 61*time.Second) }, I2},
		"a lease goes on and on":        {func(r *run) { r.believe(r.lease(0, 5*time.Minute), time.Second) }, I15},
		"a lease has no end": {func(r *run) {
			r.believe(r.lease(0, time.Minute), time.Second)
			i := slices.IndexFunc(r.records, func(x locktable.Record) bool { return x.Kind == locktable.KindExpire })
			last := r.records[i]
			r.records = append(r.records[:i], locktable.Record{LSN: last.LSN, Epoch: 2, Kind: locktable.KindHandedOver, Time: last.Time + 600_000})
		}, I15},
	} {
		t.Run(name, func(t *testing.T) { wantDamage(t, c.damage, c.want) })
	}
}

// lease gives the n-th expiry and its grant times, so that the lease lasted as long as this, and
// returns the grant.
func (r *run) lease(n int, lasted time.Duration) *locktable.Record {
	end := r.find(locktable.KindExpire, n)
	i := slices.IndexFunc(r.records, func(x locktable.Record) bool { return x.LSN.Token() == end.Token })
	r.records[i].Time = 1_000_000
	end.Time = r.records[i].Time + lasted.Milliseconds()
	r.stuck = time.Minute
	return &r.records[i]
}

// believe lets the holder of a grant count on it for as long as this.
func (r *run) believe(g *locktable.Record, lasted time.Duration) {
	from := time.UnixMilli(g.Time)
	r.ledger.Hold(Hold{Client: 1, Lock: g.Lock, Token: g.LSN.Token(), From: from, Until: from.Add(lasted)})
}

// TestLeasesThatAreRight: leases end when they are over, or later where they were renewed, and
// soon after their holders have stopped to count on them.
func TestLeasesThatAreRight(t *testing.T) {
	for name, c := range map[string]struct{ lasted, believed time.Duration }{
		"never renewed":              {time.Minute, 59 * time.Second},
		"renewed":                    {3 * time.Minute, 150 * time.Second},
		"held until it was over":     {time.Minute, time.Minute},
		"left alone at its start":    {time.Minute, time.Millisecond},
		"after an outage of servers": {119 * time.Second, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := rightRun(t)
			r.believe(r.lease(0, c.lasted), c.believed)
			if report, _ := r.check(t, r.write(t)); len(report.Violations()) > 0 {
				t.Errorf("violations: %q", report.Violations())
			}
		})
	}
}

func swapRequests(a, b *locktable.Record) {
	a.Client, b.Client = b.Client, a.Client
	a.Request, b.Request = b.Request, a.Request
}

func termAt(r *locktable.Record, server cluster.ServerID) locktable.Record {
	return locktable.Record{LSN: r.LSN, Epoch: r.Epoch, Kind: locktable.KindTerm, Server: server}
}

// TestLogThatDoesNotConnect damages files, not records.
func TestLogThatDoesNotConnect(t *testing.T) {
	second := filepath.Join("epochs", "0000000002")
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"the adopted end was never reached": {func(t *testing.T, dir string) {
			writeTerm(t, dir, 3, wal.Position{LSN: 1000, Chain: 5}, nil)
		}, "I3: nothing leads from"},
		"the adopted chain value is another": {func(t *testing.T, dir string) {
			writeTerm(t, dir, 3, wal.Position{LSN: 16, Chain: 5}, nil)
		}, "I3: nothing leads from"},
		"a flipped bit in the newest log": {func(t *testing.T, dir string) {
			name := filepath.Join(dir, second, wal.SegmentName(1))
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[7*wal.BlockSize+100] ^= 1
			put(t, name, b)
		}, "I3: client 0 was told"},
		"START is damaged": {func(t *testing.T, dir string) {
			name := filepath.Join(dir, second, "fence")
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[startOffset+40] ^= 1
			put(t, name, b)
		}, "neither absent nor valid"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rightRun(t)
			dir := r.write(t)
			c.damage(t, dir)
			report := &Report{}
			_, err := CheckLog(LogOptions{Dir: dir, Ledger: r.ledger}, report)
			if all := fmt.Sprint(err, report.Violations()); !strings.Contains(all, c.want) {
				t.Errorf("want %q, got %s", c.want, all)
			}
		})
	}
}
