// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// beside is a fake, and the lock table that it stands in for.
type beside struct {
	t      *testing.T
	s      *fakeServer
	table  *locktable.Table
	named  map[string]cluster.ClientID // the fake's clients, in the table
	tokens map[uint64]cluster.Token    // likewise
}

// decide has the table do what the fake was asked for.
func (b *beside) decide(q *locktable.Request, err error) locktable.Decision {
	if err != nil {
		b.t.Fatal(err)
	}
	if id, ok := b.named[string(q.Client)]; ok {
		q.Client = id
	}
	recs, d := b.table.Decide(q, 1, locktable.FileFacts{}, nil)
	b.apply(recs)
	return d
}

func (b *beside) apply(recs []locktable.Record) {
	for i := range recs {
		if err := b.table.Apply(&recs[i]); err != nil {
			b.t.Fatal(err)
		}
	}
}

// same compares what both answered.
func (b *beside) same(what string, a *pb.Answer, err error, d locktable.Decision) {
	if err != nil || wire.FromStatus(a.GetStatus()) != d.Outcome.Status || a.GetRepeat() != d.Outcome.Repeat {
		b.t.Fatalf("%s: the fake says %v %v, and the table %+v", what, a, err, d.Outcome)
	}
}

func (b *beside) open(nonce uint64) string {
	q := &pb.OpenClientRequest{Nonce: nonce}
	a, err := b.s.OpenClient(b.t.Context(), q)
	d := b.decide(convert.ToRequest(locktable.OpOpenClient, q, ""))
	b.same("open", a, err, d)
	b.named[a.ClientId] = d.Outcome.Client
	return a.ClientId
}

// keepAlive compares what both list of a client that believes to hold these tokens.
func (b *beside) keepAlive(client string, held []uint64) {
	var fakes, tables cluster.Digest
	for _, token := range held {
		fakes, tables = fakes.With(cluster.Token(token)), tables.With(b.tokens[token])
	}
	r, err := b.s.KeepAlive(b.t.Context(), &pb.KeepAliveRequest{ClientId: client, Held: uint32(len(held)), Digest: (*uint64)(&fakes)})
	id := b.named[client]
	if differs := b.table.DigestOf(id) != tables; err != nil || r.Differs != differs || !r.Compared {
		b.t.Fatalf("%s holds %v: the fake says %v %v, by the table it differs: %v", client, held, r, err, differs)
	}
	if !r.Differs {
		return
	}
	var listed []cluster.Token
	for _, g := range r.Grants {
		live, ok := b.table.Live(cluster.LockName(g.Lock), b.tokens[g.Token])
		if !ok || live.Client != id || uint64(live.Request) != g.RequestId {
			b.t.Fatalf("the fake lists %v for %s, and the table has %+v", g, client, live)
		}
		listed = append(listed, live.Token)
	}
	if len(listed) != b.table.HeldBy(id) {
		b.t.Fatalf("the fake lists %v for %s, which holds %d", listed, client, b.table.HeldBy(id))
	}
}

// The fake that the tests of this package talk to answers requests, their repeats, and
// keep-alives as the lock table does.
func TestTheFakeAnswersAsTheTable(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := &beside{t: t, s: newFakeCluster().server("s"), table: locktable.New(), named: map[string]cluster.ClientID{}, tokens: map[uint64]cluster.Token{}}
		clients := []string{b.open(7), b.open(8), b.open(7)}
		if clients[0] != clients[2] {
			t.Fatal("one nonce, two clients")
		}
		var acquired []*pb.AcquireRequest
		var released []*pb.ReleaseRequest
		var tokens []uint64
		for id := range uint64(200) {
			lock, client := string(rune('a'+r.IntN(3))), clients[r.IntN(2)]
			switch n := r.IntN(8); {
			case n < 3:
				q := &pb.AcquireRequest{ClientId: client, RequestId: id + 1, Lock: lock, TtlMs: 10_000}
				if len(acquired) > 0 && n == 0 {
					q = acquired[r.IntN(len(acquired))]
				}
				acquired = append(acquired, q)
				a, err := b.s.Acquire(t.Context(), q)
				d := b.decide(convert.ToRequest(locktable.OpAcquire, q, ""))
				b.same("acquire", a, err, d)
				if a.Token != 0 && !a.Repeat {
					b.tokens[a.Token] = d.Outcome.Token
					tokens = append(tokens, a.Token)
				}
			case n < 5 && len(tokens) > 0:
				q := &pb.ReleaseRequest{ClientId: client, RequestId: id + 1, Lock: lock, Token: tokens[len(tokens)-1-r.IntN(min(3, len(tokens)))]}
				if len(released) > 0 && r.IntN(4) == 0 {
					q = released[r.IntN(len(released))]
				}
				released = append(released, q)
				a, err := b.s.Release(t.Context(), q)
				theirs, bad := convert.ToRequest(locktable.OpRelease, q, "")
				theirs.Token = b.tokens[q.Token]
				b.same("release", a, err, b.decide(theirs, bad))
			case n == 5:
				if l, ok := b.table.Lock(cluster.LockName(lock)); ok && l.Grant.Token != 0 {
					b.s.f.end(lock)
					b.apply(b.table.DecideExpire(l.Name, l.Grant.Token, "", 1, nil))
				}
			default:
				var held []uint64
				for g := range b.table.Held(b.named[client]) {
					for fakes, token := range b.tokens {
						if token == g.Token && r.IntN(5) > 0 {
							held = append(held, fakes)
						}
					}
				}
				if len(tokens) > 0 && r.IntN(5) == 0 && !slices.Contains(held, tokens[0]) {
					held = append(held, tokens[0])
				}
				b.keepAlive(client, held)
			}
		}
	}
}
