// SPDX-License-Identifier: Apache-2.0

package locktable_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// loop decides and applies without checks.
type loop struct {
	tb    testing.TB
	table *locktable.Table
	recs  []record
}

func (l *loop) do(q *locktable.Request, facts locktable.FileFacts) locktable.Outcome {
	recs, dec := l.table.Decide(q, 1, facts, l.recs[:0])
	for i := range recs {
		if err := l.table.Apply(&recs[i]); err != nil {
			l.tb.Fatal(err)
		}
	}
	l.recs = recs
	return dec.Outcome
}

// crowd is a loop over a table with n held locks and an opened client.
func crowd(tb testing.TB, n int) (*loop, cluster.ClientID) {
	l := &loop{tb: tb, table: locktable.New()}
	other := l.do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 1}, locktable.FileFacts{}).Client
	for i := range n {
		q := acquire(other, cluster.RequestID(i+1), cluster.LockName(fmt.Sprintf("tenant-%03d/job-%07d", i%1000, i)), 0)
		q.LowWater = cluster.RequestID(i + 1)
		l.do(&q, locktable.FileFacts{})
	}
	return l, l.do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: 2}, locktable.FileFacts{}).Client
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, held := range []int{0, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			l, c := crowd(b, held)
			names := make([]cluster.LockName, 256)
			for i := range names {
				names[i] = cluster.LockName(fmt.Sprintf("tenant-%03d/mine-%03d", i*3, i))
			}
			id := cluster.RequestID(0)
			b.ReportAllocs()
			for b.Loop() {
				id += 2
				q := acquire(c, id, names[id/2%256], 0)
				q.LowWater = id
				token := l.do(&q, locktable.FileFacts{}).Token
				q = release(c, id+1, q.Lock, token)
				q.LowWater = id + 1
				l.do(&q, locktable.FileFacts{})
			}
		})
	}
}

// One lock with 64 waiters: each round is an enqueue, a release and the next grant.
func BenchmarkContended(b *testing.B) {
	l := &loop{tb: b, table: locktable.New()}
	clients := make([]cluster.ClientID, 65)
	for i := range clients {
		clients[i] = l.do(&locktable.Request{Op: locktable.OpOpenClient, Nonce: uint64(i + 1)}, locktable.FileFacts{}).Client
	}
	id := cluster.RequestID(1)
	q := acquire(clients[0], id, "billing/job", forever)
	token := l.do(&q, locktable.FileFacts{}).Token
	for _, c := range clients[1:] {
		q := acquire(c, id, "billing/job", forever)
		l.do(&q, locktable.FileFacts{})
	}
	b.ReportAllocs()
	for b.Loop() {
		holder := clients[int(id-1)%len(clients)]
		q := release(holder, id*2, "billing/job", token)
		q.LowWater = id * 2
		l.do(&q, locktable.FileFacts{})
		token = cluster.Token(l.table.LSN())
		q = acquire(holder, id*2+1, "billing/job", forever)
		q.LowWater = id*2 + 1
		l.do(&q, locktable.FileFacts{})
		id++
	}
}

func BenchmarkAppend(b *testing.B) {
	l, c := crowd(b, 1000)
	q := acquire(c, 1, "billing/job", 0)
	token := l.do(&q, locktable.FileFacts{}).Token
	q = appendTo(c, 2, "billing/job", token, "billing/audit.log", "4711 did something that the auditors want to know\n")
	b.ReportAllocs()
	for b.Loop() {
		l.do(&q, locktable.FileFacts{Inode: 1})
		q.ID++
		q.LowWater = q.ID
	}
}

func BenchmarkRefusal(b *testing.B) {
	l, c := crowd(b, 1000)
	q := acquire(c, 1, "tenant-000/job-0000000", 0)
	b.ReportAllocs()
	for b.Loop() {
		l.do(&q, locktable.FileFacts{})
	}
}

func BenchmarkValidate(b *testing.B) {
	q := acquire("@12", 1, "billing/job", 0)
	timing := cluster.DefaultTiming()
	b.ReportAllocs()
	for b.Loop() {
		q.Validate(timing)
	}
}

func BenchmarkEncode(b *testing.B) {
	r := samples()[0]
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = r.AppendHeader(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkDecode(b *testing.B) {
	r := samples()[0]
	buf := r.AppendHeader(nil)
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	var d locktable.Decoder
	for b.Loop() {
		if _, err := d.DecodeHeader(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExportStep is what the core loop pays for one chunk of a checkpoint.
func BenchmarkExportStep(b *testing.B) {
	l, _ := crowd(b, 100_000)
	x := l.table.BeginExport()
	b.ReportAllocs()
	for b.Loop() {
		if _, more := x.Next(256, nil); !more {
			x = l.table.BeginExport()
		}
	}
}

// BenchmarkApplyWhileExporting is BenchmarkAcquireRelease on locks that an export has not reached.
func BenchmarkApplyWhileExporting(b *testing.B) {
	l, c := crowd(b, 100_000)
	x := l.table.BeginExport()
	defer x.Close()
	id := cluster.RequestID(0)
	b.ReportAllocs()
	for b.Loop() {
		id += 2
		q := acquire(c, id, "z", 0)
		q.LowWater = id
		token := l.do(&q, locktable.FileFacts{}).Token
		q = release(c, id+1, "z", token)
		q.LowWater = id + 1
		l.do(&q, locktable.FileFacts{})
	}
}

func BenchmarkMarshal(b *testing.B) {
	l, _ := crowd(b, 1000)
	var all []locktable.Entity
	for e := range l.table.Export() {
		all = append(all, e)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(all[i%len(all)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkClone(b *testing.B) {
	l, _ := crowd(b, 100_000)
	for b.Loop() {
		l.table.Clone()
	}
}

// BenchmarkMemory reports the bytes that one more held lock costs.
func BenchmarkMemory(b *testing.B) {
	const n = 1_000_000
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		l, _ := crowd(b, n)
		b.ReportMetric((heap()-before)/n, "B/lock")
		runtime.KeepAlive(l)
	}
}
