// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/wal"
)

// LogOptions are the log and what it is compared with.
type LogOptions struct {
	// Dir has the terms under epochs/: the archive of a Collector, or the volume
	// of a run in which nothing was removed.
	Dir string
	// Ledger has the requests and answers of clients; nil = none.
	Ledger *Ledger
	// File reads a protected file as it is in the end; nil = files are not compared.
	File func(cluster.FileName) ([]byte, error)
	// Stuck is how much longer than its lease a grant may last after its holder has stopped to
	// use it: time for takeovers and other faults of the run; 0 = for ever.
	Stuck time.Duration
}

// LogVerdict is the result of judging a log.
type LogVerdict struct {
	Records     int
	End         wal.Position
	Epochs      int // directories
	Started     int // of them
	Told        int // answers compared with their records
	Checkpoints int // compared with the log
	Files       int // likewise
	Raised      int // records that raise the feature level of the cluster
	Permits     int // grants of permits
	Took        time.Duration
}

// CheckLog reads the one log that all terms wrote and adopted, in time proportional to its
// length. It verifies that each record is legal after the previous ones, in a model that was
// written independently of the service's table; that each answer to a client is that of its
// record, which is there once; that a request answered before another was sent comes before it;
// that LSNs and chain values connect; and that checkpoints and files have the state that the log
// produces. Findings go to the report. It returns an error only if it could not read.
func CheckLog(o LogOptions, r *Report) (v LogVerdict, err error) {
	began := time.Now()
	terms, err := readTerms(o.Dir)
	if err != nil {
		return v, fmt.Errorf("read the log under %s: %w", o.Dir, err)
	}
	c := &logCheck{report: r, leases: newLeases(nil, 0, r), reference: newReference(r.Violation), data: map[uint64]int{}, seed: maphash.MakeSeed()}
	for _, x := range terms {
		v.Epochs++
		if x.started {
			v.Started++
		}
	}
	if c.checkpoints, err = findCheckpoints(terms); err != nil {
		return v, err
	}
	var appends []Append
	if o.Ledger != nil {
		var grants []Grant
		appends, grants, _ = o.Ledger.Entries()
		c.expect(appends, grants)
		c.leases = newLeases(o.Ledger.Holds(), o.Stuck, r)
	}
	end, bad := readLog(terms, c.visit)
	r.Findings(bad)
	c.finish(appends)
	if o.File != nil {
		c.files(o.File)
	}
	v.Records, v.End, v.Told, v.Checkpoints, v.Files = c.records, end, c.told, c.compared, len(c.reference.files)
	v.Raised, v.Permits = c.reference.raised, c.reference.permits
	v.Took = time.Since(began)
	r.Figure("log", "%d records of %d terms up to LSN %d, %d answers, %d checkpoints and %d files compared, in %v",
		v.Records, v.Started, v.End.LSN, v.Told, v.Checkpoints, v.Files, v.Took.Round(time.Millisecond))
	return v, nil
}

// logCheck is the state of CheckLog.
type logCheck struct {
	report    *Report
	reference *reference
	leases    *leases
	records   int

	// answers are the answers that clients got, in order of LSNs; next is the first that
	// no record was found for yet.
	answers []answer
	next    int
	told    int

	seed maphash.Seed
	data map[uint64]int // how often appended data is in the log

	checkpoints []checkpoint // ascending; those before the log's place are done
	compared    int
}

// answer is the answer that a client got for the record with an LSN.
type answer struct {
	lsn            cluster.LSN
	append         *Append // or
	grant          *Grant
	sent, answered time.Time
}

func (c *logCheck) expect(appends []Append, grants []Grant) {
	for i := range appends {
		if a := &appends[i]; a.Acked {
			c.answers = append(c.answers, answer{lsn: a.Receipt.LSN, append: a, sent: a.Sent, answered: a.Answered})
		}
	}
	for i := range grants {
		g := &grants[i]
		c.answers = append(c.answers, answer{lsn: cluster.LSN(g.Token), grant: g, sent: g.Sent, answered: g.Answered})
	}
	c.realTime()
	slices.SortFunc(c.answers, func(a, b answer) int { return cmp.Compare(a.lsn, b.lsn) })
	for i := 1; i < len(c.answers); i++ {
		if c.answers[i].lsn == c.answers[i-1].lsn {
			c.report.Violation(I7, "LSN %d was told to two requests", c.answers[i].lsn)
		}
	}
}

// realTime checks that a request answered before another one was sent comes before it in the log.
func (c *logCheck) realTime() {
	asked, heard := slices.Clone(c.answers), slices.Clone(c.answers)
	slices.SortFunc(asked, func(a, b answer) int { return a.sent.Compare(b.sent) })
	slices.SortFunc(heard, func(a, b answer) int { return a.answered.Compare(b.answered) })
	var high cluster.LSN
	next := 0
	for _, a := range asked {
		for ; next < len(heard) && heard[next].answered.Before(a.sent); next++ {
			high = max(high, heard[next].lsn)
		}
		c.report.Checked(I9, 1)
		if a.lsn <= high {
			c.report.Violation(I9, "LSN %d was asked for after LSN %d was answered", a.lsn, high)
		}
	}
}

func (c *logCheck) visit(rec *locktable.Record, chain wal.Chain) error {
	c.records++
	c.reference.see(rec)
	c.leases.see(rec)
	for c.next < len(c.answers) && c.answers[c.next].lsn < rec.LSN {
		c.missing(c.answers[c.next])
		c.next++
	}
	for c.next < len(c.answers) && c.answers[c.next].lsn == rec.LSN {
		c.match(c.answers[c.next], rec)
		c.next++
	}
	if rec.Kind == locktable.KindAppend {
		c.data[c.key(rec.File, rec.Data)]++
	}
	for len(c.checkpoints) > 0 && c.checkpoints[0].lsn <= rec.LSN {
		if c.checkpoints[0].lsn == rec.LSN {
			c.checkpoint(c.checkpoints[0], wal.Position{LSN: rec.LSN, Chain: chain})
		}
		c.checkpoints = c.checkpoints[1:]
	}
	return nil
}

func (c *logCheck) key(file cluster.FileName, data []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.WriteString(string(file)) //nolint:errcheck // a hash never fails
	h.WriteByte(0)              //nolint:errcheck // likewise
	h.Write(data)               //nolint:errcheck // likewise
	return h.Sum64()
}

// match compares an answer with its record.
func (c *logCheck) match(a answer, r *locktable.Record) {
	c.told++
	c.report.Checked(I3, 1)
	c.report.Checked(I7, 1)
	if g := a.grant; g != nil {
		if r.Kind != locktable.KindGrant || r.Lock != g.Lock || r.Epoch != g.Epoch {
			c.report.Violation(I7, "client %d was told of token %d of %s in epoch %d, the log has %v of %s in epoch %d", g.Client, g.Token, g.Lock, g.Epoch, r.Kind, r.Lock, r.Epoch)
		}
		if g.Holder != "" && r.Holder.Command != g.Holder {
			c.report.Violation(I7, "%q was told of token %d of %s, which the log grants to %q", g.Holder, g.Token, g.Lock, r.Holder.Command)
		}
		return
	}
	x := a.append
	same := r.Kind == locktable.KindAppend && r.File == x.File && r.Lock == x.Lock && string(r.Data) == string(x.Data)
	said := x.Receipt
	if !same || r.Offset != said.Offset || r.Length != said.Length || r.CRC != said.CRC32C || r.Token != said.Token || r.Epoch != said.Epoch || r.Generation != said.Generation {
		c.report.Violation(I7, "client %d was told %+v of its append to %s, the log has %v at offset %d of %s, token %d, epoch %d", x.Client, said, x.File, r.Kind, r.Offset, r.File, r.Token, r.Epoch)
	}
}

func (c *logCheck) missing(a answer) {
	if a.grant != nil {
		c.report.Violation(I3, "client %d was told of token %d of %s, which is not in the log", a.grant.Client, a.grant.Token, a.grant.Lock)
		return
	}
	c.report.Violation(I3, "client %d was told of LSN %d, which is not in the log", a.append.Client, a.lsn)
}

// finish makes the checks that need the end of the log.
func (c *logCheck) finish(appends []Append) {
	for ; c.next < len(c.answers); c.next++ {
		c.missing(c.answers[c.next])
	}
	c.reference.atTheEnd()
	c.leases.atTheEnd()
	for i, n := range c.reference.counts {
		c.report.Checked(Number(i), n)
	}
	type wanted struct {
		acked, allowed int
		one            *Append
	}
	want := map[uint64]wanted{}
	for i := range appends {
		a := &appends[i]
		k := c.key(a.File, a.Data)
		w := want[k]
		w.one = a
		if a.Acked {
			w.acked++
		}
		if !a.Refused {
			w.allowed++
		}
		want[k] = w
	}
	for k, w := range want {
		c.report.Checked(I7, 1)
		if n := c.data[k]; n < w.acked || n > w.allowed {
			c.report.Violation(I7, "an append of client %d to %s is in the log %d times; it was acknowledged %d times, and as often as it was not refused: %d: %.40q", w.one.Client, w.one.File, n, w.acked, w.allowed, w.one.Data)
		}
	}
}

// files compares what is in the files in the end with what was appended. A
// server that died may owe the last appends, which had no answer.
func (c *logCheck) files(read func(cluster.FileName) ([]byte, error)) {
	for name, f := range c.reference.files {
		if f.stopped {
			continue // another program wrote to it, which is the reason
		}
		c.report.Checked(I5, 1)
		b, err := read(name)
		if err != nil {
			c.report.Violation(I5, "%s: %v", name, err)
			continue
		}
		f.compare(name, b, c.report)
	}
}

func (f *refFile) compare(name cluster.FileName, content []byte, r *Report) {
	size := int64(len(content))
	marks := append([]fileMark{{end: f.start}}, f.marks...)
	if len(f.marks) >= markLimit {
		marks = f.marks
	}
	i, there := slices.BinarySearchFunc(marks, size, func(m fileMark, size int64) int { return cmp.Compare(m.end, size) })
	switch {
	case size > f.end || size < marks[0].end:
		r.Violation(I5, "%s has %d bytes, the log makes %d", name, size, f.end)
		return
	case !there:
		i-- // the last append is there in part
	}
	m := marks[i]
	if got := crc32.Checksum(content[f.start:m.end], crc32.MakeTable(crc32.Castagnoli)); got != m.sum {
		r.Violation(I5, "%s: bytes %d to %d have CRC-32C %08x, the log makes %08x", name, f.start, m.end, got, m.sum)
	}
}
