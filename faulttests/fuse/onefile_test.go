// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

const (
	// illFile is the file whose calls hang. Its directory has no other.
	illFile = hf.FileName("ill/file")
	// askFor is how long a client asks for one append.
	askFor = 8 * time.Second
	// refusedWithin bounds how long the service keeps a caller who appends to it: a hang counts as
	// one after 5 s at most, and the machine may be busy.
	refusedWithin = 20 * time.Second
)

// patient appends to the file whose calls hang, and notes what it was told.
type patient struct {
	t      *testing.T
	lock   *clientlib.Lock
	ledger check.Ledger
	n      int
}

func (s *site) newPatient(t *testing.T) *patient {
	t.Helper()
	client, err := clientlib.New(clientlib.Options{Endpoints: s.Endpoints(), Budget: askFor})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() }) // the servers may be gone
	lock, err := client.Acquire(t.Context(), "ill", clientlib.AcquireOptions{TTL: time.Minute})
	must(t, err)
	return &patient{t: t, lock: lock}
}

// append appends one line, and says how long that took.
func (p *patient) append() (time.Duration, error) {
	p.n++
	x := check.Append{Chunk: check.Chunk{First: p.n, Last: p.n, Data: check.Tagged(0, p.n, []byte("x"))}, File: illFile, Lock: p.lock.Name(), After: p.ledger.High(), Sent: time.Now()}
	r, err := p.lock.Append(p.t.Context(), x.File, x.Data)
	x.Acked, x.Receipt, x.Answered = err == nil, traffic.ReceiptOf(r), time.Now()
	p.ledger.Append(x)
	return x.Answered.Sub(x.Sent), err
}

// refused wants appends not to be done, and to be told so soon.
func (p *patient) refused(when string) {
	p.t.Helper()
	for range 3 {
		took, err := p.append()
		p.t.Logf("%s: an append is told after %v: %v", when, took, err)
		if err == nil || took > refusedWithin {
			p.t.Errorf("%s: an append to a file that hangs: %v after %v", when, err, took)
		}
	}
}

// await appends until that is done again.
func (p *patient) await(when string) {
	p.t.Helper()
	cluster.Await(p.t, cluster.Patience, "an append to be done "+when, func() bool { _, err := p.append(); return err == nil })
}

// others wants everything else to go on: files, locks, and what waits for one.
func (s *site) others(t *testing.T, w *writer, when string) {
	t.Helper()
	began := time.Now()
	w.lines(20)
	client, err := clientlib.New(clientlib.Options{Endpoints: s.Endpoints()})
	must(t, err)
	defer client.Close() //nolint:errcheck // the servers may be gone
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	for range 5 {
		lock, err := client.Acquire(ctx, "other", clientlib.AcquireOptions{TTL: time.Minute, Wait: time.Minute})
		must(t, err)
		must(t, lock.Release(ctx))
	}
	t.Logf("%s: 20 appends and 5 locks took %v", when, time.Since(began))
}

// TestClusterOneFileHangs lets calls of one protected file hang while all others are answered: on
// the primary's host, and on all. Appends to it are refused soon, everything else goes on, a
// failover works meanwhile, and when the hang ends the file serves again.
func TestClusterOneFileHangs(t *testing.T) {
	if !*faults {
		t.Skip("takes half a minute: give -faults")
	}
	for _, x := range []struct {
		name       string
		everywhere bool
		fault      fuse.Fault
	}{
		{"its writes, on the primary's host", false, fuse.Fault{Ops: fuse.Write | fuse.Fsync, Under: "files/ill", Hang: true}},
		{"all, everywhere", true, fuse.Fault{Under: "files/ill", Hang: true}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := newSite(t, fuse.Strict())
			w, p := s.newWriter(t), s.newPatient(t)
			w.lines(20)
			p.await("before")
			was, epoch := s.Primary(t.Context())
			var hang *fuse.Rule
			if x.everywhere {
				hang = s.share.Inject(x.fault)
			} else {
				hang = s.hosts[was.Member.ID].Inject(x.fault)
			}
			p.refused("while it hangs")
			s.others(t, w, "while it hangs")
			wantTrouble(t, was)
			if now, e := s.Primary(t.Context()); now != was || e != epoch {
				t.Errorf("one file hangs, and the term of epoch %d became one of epoch %d", epoch, e)
			}
			was.Kill()
			next := s.AwaitTerm(cluster.Patience, epoch)
			s.others(t, w, "after the failover")
			if x.everywhere {
				p.refused("after the failover")
			} else {
				p.await("by a primary whose calls do not hang")
			}
			if !next.Running() || hang.Hits() == 0 {
				t.Errorf("the second primary runs: %v; %d calls hung", next.Running(), hang.Hits())
			}
			hang.Release()
			p.await("after the hang")
			was.Start()
			s.AwaitReplicas(cluster.Patience)
			s.end(t, w)
			for _, bad := range check.Judge(&p.ledger, func(name hf.FileName) ([]byte, error) { return os.ReadFile(s.File(string(name))) }).Bad {
				t.Error(bad)
			}
		})
	}
}

// wantTrouble wants a server to say which file hangs.
func wantTrouble(t *testing.T, x *cluster.Server) {
	t.Helper()
	own, _ := told(t, x)
	if !slices.ContainsFunc(own.Volume.Warnings, func(w string) bool { return strings.Contains(w, string(illFile)) }) {
		t.Errorf("server %d does not tell of the file that hangs: %q", x.Member.ID, own.Volume.Warnings)
	}
}
