// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// everything is a snapshot with one of each thing, and two pending appends.
func everything(t testing.TB) checkpoint.Snapshot {
	t.Helper()
	table := locktable.New()
	var pending []locktable.Record
	chain := wal.Chain(0)
	do := func(q locktable.Request, facts locktable.FileFacts) locktable.Outcome {
		recs, d := table.Decide(&q, 3, facts, nil)
		for i := range recs {
			if err := table.Apply(&recs[i]); err != nil {
				t.Fatal(err)
			}
			chain = chain.Next(recs[i].AppendHeader(nil))
			if recs[i].Kind == locktable.KindAppend {
				pending = append(pending, recs[i])
			}
		}
		return d.Outcome
	}
	lock := func(client cluster.ClientID, id cluster.RequestID, name cluster.LockName, wait time.Duration) locktable.Outcome {
		return do(locktable.Request{
			Op: locktable.OpAcquire, Client: client, ID: id, Lock: name, TTL: time.Minute, Wait: wait,
			Holder: locktable.Holder{Host: "h<\"ü>", Command: "a\nb"},
		}, locktable.FileFacts{})
	}
	opened := do(locktable.Request{Op: locktable.OpOpenClient, Nonce: 77}, locktable.FileFacts{})
	g := lock(opened.Client, 1, "billing/job", 0)
	lock("c2", 1, "billing/job", locktable.WaitForever)
	lock("c3", 1, "billing/job", 5*time.Second)
	other := lock("c2", 2, "ü/]\"{", 0)
	do(locktable.Request{Op: locktable.OpRelease, Client: "c2", ID: 3, Lock: "ü/]\"{", Token: other.Token}, locktable.FileFacts{})
	do(locktable.Request{Op: locktable.OpCancel, Client: "c4", Target: 9}, locktable.FileFacts{})
	for i, data := range []string{"plain\n", "\"],\n\"entities\":[\n{}\n\x00\xff"} {
		do(locktable.Request{
			Op: locktable.OpAppend, Client: opened.Client, ID: cluster.RequestID(i + 2), Lock: "billing/job", Token: g.Token, File: "dir/f", Data: []byte(data),
		}, locktable.FileFacts{Inode: 5})
	}
	if err := table.Check(); err != nil || len(pending) != 2 {
		t.Fatalf("%d appends, %v", len(pending), err)
	}
	return checkpoint.Snapshot{Epoch: 3, At: wal.Position{LSN: table.LSN(), Chain: chain}, Table: table, Pending: pending}
}

func encode(t testing.TB, s checkpoint.Snapshot) (state, requests []byte) {
	t.Helper()
	files := map[string]*bytes.Buffer{}
	err := s.Export().Files(func(name string, write func(io.Writer) error) error {
		files[name] = &bytes.Buffer{}
		return write(files[name])
	})
	if err != nil {
		t.Fatal(err)
	}
	return files[layout.StateName].Bytes(), files[layout.RequestsName].Bytes()
}

// decode reads a checkpoint that has these two files, of the cluster and LSN that the state names. It wants what
// verifies without a table be what verifies with one, but for entities.
func decode(t testing.TB, state, requests []byte) (*checkpoint.Base, error) {
	t.Helper()
	d := volumetest.New(1)
	if err := d.Write(layout.StateName, 0, state); err != nil {
		t.Fatal(err)
	}
	h := host(d, 1)
	head, _ := checkpoint.ReadHead(h, layout.StateName)
	const term = "epochs/0000000001"
	dir := term + "/" + layout.CheckpointDir(head.LSN)
	if err := errors.Join(d.Mkdir(dir), d.Write(dir+"/"+layout.StateName, 0, state), d.Write(dir+"/"+layout.RequestsName, 0, requests)); err != nil {
		t.Fatal(err)
	}
	b, err := checkpoint.Read(h, head.Cluster, term, head.LSN, true)
	verified := checkpoint.Verify(h, term, head.LSN, func() error { return nil })
	without, werr := checkpoint.Read(h, head.Cluster, term, head.LSN, false)
	if (werr == nil) != (verified == nil) || err == nil && werr != nil {
		t.Errorf("with a table %v, without one %v, verified %v", err, werr, verified)
	}
	if err == nil && (without.Table != nil || without.At != b.At || without.Size != b.Size || len(without.Pending) != len(b.Pending)) {
		t.Errorf("with a table %+v, without one %+v", b, without)
	}
	return b, err
}

func TestCheckpointReadsAsItWasWritten(t *testing.T) {
	s := everything(t)
	for name, s := range map[string]checkpoint.Snapshot{"of everything": s, "of nothing": {Epoch: 1, Table: locktable.New()}} {
		t.Run(name, func(t *testing.T) {
			state, requests := encode(t, s)
			b, err := decode(t, state, requests)
			if err != nil {
				t.Fatal(err)
			}
			table, pending := b.Table, b.Pending
			if err := table.Check(); err != nil || table.Hash() != s.Table.Hash() || table.LSN() != s.At.LSN {
				t.Errorf("the table differs: LSN %d, %v", table.LSN(), err)
			}
			if len(pending) != len(s.Pending) {
				t.Fatalf("%d pending appends, want %d", len(pending), len(s.Pending))
			}
			for i := range pending {
				if !bytes.Equal(pending[i].AppendHeader(nil), s.Pending[i].AppendHeader(nil)) || !bytes.Equal(pending[i].Data, s.Pending[i].Data) {
					t.Errorf("pending append %d: %+v, want %+v", i, pending[i], s.Pending[i])
				}
			}
			again, err := checkpoint.ReadSnapshot(iotest.OneByteReader(bytes.NewReader(append(slices.Clone(requests), state...))))
			if err != nil || again.At != s.At || again.Epoch != s.Epoch || again.Table.Hash() != s.Table.Hash() {
				t.Errorf("as a snapshot: at %v, %v", again.At, err)
			}
		})
	}
}

func TestNoFlippedBitIsAccepted(t *testing.T) {
	state, requests := encode(t, everything(t))
	for _, file := range []struct {
		name  string
		bytes []byte
	}{{"lock_state.json", state}, {"processed_requests.log", requests}} {
		for i := 0; i < len(file.bytes); i += stride() {
			for bit := range 8 {
				file.bytes[i] ^= 1 << bit
				if _, err := checkpoint.ReadSnapshot(bytes.NewReader(append(slices.Clone(requests), state...))); err == nil {
					t.Errorf("%s in a snapshot: bit %d of byte %d of %d (%q) may flip", file.name, bit, i, len(file.bytes), file.bytes[i])
				}
				if i%8 == bit { // the same decoder, and slower
					if _, err := decode(t, state, requests); err == nil {
						t.Errorf("%s: bit %d of byte %d of %d (%q) may flip", file.name, bit, i, len(file.bytes), file.bytes[i])
					}
				}
				file.bytes[i] ^= 1 << bit
			}
		}
	}
}

func TestNoCutOrForeignFileIsAccepted(t *testing.T) {
	s := everything(t)
	state, requests := encode(t, s)
	for n := range len(state) {
		if _, err := decode(t, state[:n], requests); err == nil {
			t.Errorf("lock_state.json may be cut to %d of %d bytes", n, len(state))
		}
	}
	for n := range len(requests) {
		if _, err := decode(t, state, requests[:n]); err == nil {
			t.Errorf("processed_requests.log may be cut to %d of %d bytes", n, len(requests))
		}
	}
	_, others := encode(t, checkpoint.Snapshot{Epoch: 3, At: s.At, Table: locktable.New()})
	if _, err := decode(t, state, others); err == nil {
		t.Error("the receipts of another checkpoint were taken")
	}
	if _, err := decode(t, requests, state); err == nil {
		t.Error("the files were taken for each other")
	}
}

// seal gives two damaged files the sums that they should have.
func seal(state, requests []byte) ([]byte, []byte) {
	sum := func(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
	body := func(b []byte) []byte { return b[:bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n')+1] }
	requests = bytes.Clone(body(requests))
	receipts := sum(requests)
	requests = fmt.Appendf(requests, "{\"crc32c\":\"%08x\"}\n", receipts)
	state = bytes.Clone(body(state))
	if i := bytes.Index(state, []byte(`"receipts_crc32c":"`)); i >= 0 {
		copy(state[i+len(`"receipts_crc32c":"`):], fmt.Sprintf("%08x", receipts))
	}
	return fmt.Appendf(state, "\"crc32c\":\"%08x\"}\n", sum(state)), requests
}

// FuzzDecodeBase reads anything, as it is and with the right sums: it may be
// refused, but must not end the process, nor become a table that contradicts itself.
func FuzzDecodeBase(f *testing.F) {
	for _, s := range []checkpoint.Snapshot{{Epoch: 1, Table: locktable.New()}, everything(f)} {
		state, requests := encode(f, s)
		f.Add(state, requests)
		f.Add(state[:len(state)/2], requests)
	}
	f.Add([]byte("{\n\"crc32c\":\"00000000\"}\n"), []byte("{\"crc32c\":\"00000000\"}\n"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, state, requests []byte) {
		for range 2 {
			b, err := decode(t, state, requests)
			if err == nil {
				if err := b.Table.Check(); err != nil {
					t.Errorf("an accepted table is damaged: %v", err)
				}
			}
			state, requests = seal(state, requests)
		}
	})
}

func TestInterruptedCheckpointIsWrittenAgain(t *testing.T) {
	for name, action := range map[string]volumetest.Action{
		"EIO, not done":    volumetest.FailBefore(syscall.EIO),
		"EIO, but done":    volumetest.FailAfter(syscall.EIO),
		"ENOSPC, not done": volumetest.FailBefore(syscall.ENOSPC),
	} {
		bubble(t, name, func(t *testing.T) {
			for n := 1; ; n++ {
				d := newDisk(t)
				x := begin(t, d, 1)
				x.fill(3)
				before := x.host.Calls()
				x.host.SetHook(volumetest.At(before+n, action))
				_, first := x.r.WriteCheckpoint(x.snapshot().Export())
				x.host.SetHook(nil)
				if x.host.Calls() < before+n {
					return
				}
				if x.r.Err() != nil {
					t.Errorf("call %d ended the term: %v", n, x.r.Err())
				}
				x.fill(1) // under another name, as a later try would be
				if _, err := x.r.WriteCheckpoint(x.snapshot().Export()); err != nil {
					t.Errorf("call %d (%v): the next checkpoint: %v", n, first, err)
				}
				hash := x.table.Hash()
				x.kill()
				usable(t, d, hash)
			}
		})
	}
}

func TestCrashDuringACheckpointHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; ; n++ {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.fill(3)
			x.checkpoint()
			x.fill(3)
			hash := x.table.Hash()
			before := x.host.Calls()
			x.host.SetHook(volumetest.At(before+n, volumetest.CrashTorn(100)))
			_, err := x.r.WriteCheckpoint(x.snapshot().Export())
			if err == nil && !x.host.Dead() {
				return
			}
			lost := d.DurableClone(nil)
			usable(t, d, hash)
			usable(t, lost, hash)
		}
	})
}

func TestScanBeginsAtTheNewestBaseThatVerifies(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(d *volumetest.Disk, older, newer string) error
		want  int // of the bases: 2 the newer, 1 the older, 0 refused
	}{
		{"the newest", func(*volumetest.Disk, string, string) error { return nil }, 2},
		{"the older one, when the newest has a flipped bit", func(d *volumetest.Disk, _, newer string) error {
			return d.Write(newer+"/lock_state.json", 60, []byte{0xff})
		}, 1},
		{"the older one, when the newest lacks a file", func(d *volumetest.Disk, _, newer string) error {
			return d.Remove(newer + "/processed_requests.log")
		}, 1},
		{"the older one, when the newest has another name", func(d *volumetest.Disk, _, newer string) error {
			return d.Rename(newer, newer+"9")
		}, 1},
		{"none, when both are damaged and the log begins later", func(d *volumetest.Disk, older, newer string) error {
			return errors.Join(d.Remove(older), d.Write(newer+"/lock_state.json", 60, []byte{0xff}))
		}, 0},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			var bases []cluster.LSN
			for range 2 {
				x.fill(10)
				bases = append(bases, x.table.LSN())
				x.checkpoint()
			}
			x.fill(10)
			for _, name := range x.log.Removable(bases[0]) {
				if err := x.log.Drop(name); err != nil {
					t.Fatal(err)
				}
			}
			hash := x.table.Hash()
			x.kill()
			path := func(lsn cluster.LSN) string { return fmt.Sprintf("epochs/0000000001/checkpoint-%d", lsn) }
			if err := test.spoil(d, path(bases[0]), path(bases[1])); err != nil {
				t.Fatal(err)
			}
			s := start(t, d, 2)
			y, err := s.takeOver(s.claim(), nil)
			if test.want == 0 {
				if err == nil {
					t.Error("something was adopted")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if y.a.Base != bases[test.want-1] || y.table.Hash() != hash {
				t.Errorf("base %d of %v", y.a.Base, bases)
			}
		})
	}
}

// A view that is written late, by a process that was paused, is old.
func TestScanDoesNotReadTheViews(t *testing.T) {
	bubble(t, "views", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(10)
		old := x.snapshot().Export()
		x.fill(10)
		x.checkpoint()
		x.fill(10)
		base := x.table.LSN()
		x.checkpoint()
		for _, name := range x.log.Removable(base) {
			if err := x.log.Drop(name); err != nil {
				t.Fatal(err)
			}
		}
		x.fill(10)
		hash := x.table.Hash()
		if err := x.r.PublishViews(old, time.Now()); err != nil {
			t.Fatal(err)
		}
		x.kill()
		s := start(t, d, 2)
		y, err := s.takeOver(s.claim(), nil)
		if err != nil {
			t.Fatalf("with an old view beside the log nobody takes over: %v", err)
		}
		if y.a.Base != base || y.table.Hash() != hash {
			t.Errorf("the scan began at LSN %d, want the newest checkpoint's %d", y.a.Base, base)
		}
	})
}

func TestWarmTableIs(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*volume.WarmState)
		used   bool
	}{
		{"used as it was", func(*volume.WarmState) {}, true},
		{"refused with another chain value", func(w *volume.WarmState) { w.At.Chain ^= 1 }, false},
		{"refused at another LSN", func(w *volume.WarmState) { w.At.LSN++ }, false},
		{"refused from behind the log's end", func(w *volume.WarmState) { w.At.LSN += 100 }, false},
		{"refused when the table is not at its position", func(w *volume.WarmState) { w.Table = locktable.New() }, false},
	} {
		for _, base := range []string{"without a base", "with a base before it", "with a base at it", "with a base behind it"} {
			bubble(t, test.name+" "+base, func(t *testing.T) {
				d := newDisk(t)
				x := begin(t, d, 1)
				x.fill(3)
				if base == "with a base before it" {
					x.checkpoint()
				}
				x.fill(3)
				s := x.snapshot()
				if base == "with a base at it" {
					x.checkpoint()
				}
				x.fill(3)
				if base == "with a base behind it" {
					x.checkpoint()
				}
				hash := x.table.Hash()
				x.kill()
				warm := &volume.WarmState{At: s.At, Table: s.Table}
				test.change(warm)
				before := warm.Table.Hash()
				next := start(t, d, 2)
				y, err := next.takeOver(next.claim(), warm)
				if err != nil {
					t.Fatal(err)
				}
				if used := test.used && base != "with a base behind it"; y.a.Warm != used {
					t.Errorf("used: %v, want %v", y.a.Warm, used)
				}
				if y.table.Hash() != hash {
					t.Error("another table was adopted")
				}
				switch {
				case y.a.Warm && (warm.Table != y.table || warm.At != y.a.End):
					t.Errorf("the warm table stands at %v, the log ends at %v", warm.At, y.a.End)
				case !y.a.Warm && warm.Table.Hash() != before:
					t.Error("a table that was not used was changed")
				}
			})
		}
	}
}

func TestAdoptionCopiesWhereItCannotLink(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.ENOSYS} {
		bubble(t, errno.Error(), func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.fill(5)
			x.checkpoint()
			x.fill(20) // rotates
			hash := x.table.Hash()
			x.kill()
			s := start(t, d, 2)
			s.host.SetHook(volumetest.AtOp(volumetest.OpLink, "epochs/", 0, volumetest.FailBefore(errno)))
			y, err := s.takeOver(s.claim(), nil)
			if err != nil || y.table.Hash() != hash {
				t.Fatalf("takeover: %v", err)
			}
			copied := 0
			for name := range d.Snapshot() {
				if strings.HasPrefix(name, "epochs/0000000002/wal-") {
					copied++
				}
			}
			if copied < 2 {
				t.Errorf("%d segments: nothing had to be copied", copied)
			}
			lost := d.DurableClone(nil)
			y.kill()
			if err := lost.Remove("epochs/0000000001"); err != nil { // all but what stands by itself
				t.Fatal(err)
			}
			z := start(t, lost, 1)
			r := z.claim()
			if src, err := r.FenceOlder(t.Context()); err != nil || src.Epoch != 2 {
				t.Errorf("adopts from %d: %v", src.Epoch, err)
			} else if a, err := r.Scan(t.Context(), src, nil); err != nil || a.Table.Hash() != hash {
				t.Errorf("what was copied is not durable: %v", err)
			}
		})
	}
}

// keeps fails the test unless these epochs, of eight, have their contents, and the others their fence and claim only.
func keeps(t *testing.T, d *volumetest.Disk, full ...int) {
	t.Helper()
	left := map[string]int{}
	for name := range d.Files("epochs/") {
		left[name[:len("epochs/0000000000")]]++
	}
	for e := range 8 {
		dir := fmt.Sprintf("epochs/%010d", e)
		for _, name := range []string{"/fence", "/claim.json"} {
			if _, err := d.ReadFile(dir + name); err != nil {
				t.Errorf("%s%s: %v", dir, name, err)
			}
		}
		switch n := left[dir]; {
		case slices.Contains(full, e) && n < 5:
			t.Errorf("%s holds %d files: it lost some", dir, n)
		case !slices.Contains(full, e) && n != 2:
			t.Errorf("%s holds %d files, want its fence and its claim", dir, n)
		}
	}
}

func TestRemovalKeepsWhatItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		for id := cluster.ServerID(1); id <= 3; id++ {
			x := begin(t, d, id)
			x.fill(10)
			x.checkpoint()
			x.kill()
			s := start(t, d, id)
			s.claim() // the even epochs never begin
			s.host.Kill()
		}
		x := begin(t, d, 1)
		before, err := x.r.StartedBefore(t.Context(), x.src)
		if err != nil || x.src.Epoch != 5 || before != 3 {
			t.Fatalf("it adopted from %d, and %d started before that: %v", x.src.Epoch, before, err)
		}
		if err := x.r.RemoveOlder(x.src, before); err != nil {
			t.Fatal(err)
		}
		keeps(t, d, 3, 5, 7)
		if err := x.r.RemoveOlder(x.src, x.src.Epoch); err != nil {
			t.Fatal(err)
		}
		keeps(t, d, 5, 7)
		for range 3 {
			x.fill(1)
			x.checkpoint()
		}
		at := x.table.LSN()
		if err := x.r.RemoveCheckpoints(); err != nil {
			t.Fatal(err)
		}
		if got, err := x.r.PreviousBase(); err != nil || got != at-1 {
			t.Errorf("the base before the newest, %d: %d, %v", at, got, err)
		}
		states := 0
		for name := range d.Files("epochs/0000000007/checkpoint-") {
			if strings.HasSuffix(name, "/lock_state.json") {
				states++
			}
		}
		if states != 2 {
			t.Errorf("%d checkpoints are left, want the newest two", states)
		}
		hash := x.table.Hash()
		x.kill()
		usable(t, d, hash)
	})
}

func TestStartedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		if e, err := x.r.StartedBefore(t.Context(), x.src); err != nil || e != 0 {
			t.Errorf("before the first epoch: %d, %v, want that itself", e, err)
		}
		x.kill()
		start(t, d, 2).claim()
		begin(t, d, 3).kill()
		x = begin(t, d, 1)
		if e, err := x.r.StartedBefore(t.Context(), x.src); err != nil || e != 1 {
			t.Errorf("before epoch %d, over one that never began: %d, %v, want 1", x.src.Epoch, e, err)
		}
		if err := d.Truncate("epochs/0000000002/fence", 10); err != nil {
			t.Fatal(err)
		}
		if e, err := x.r.StartedBefore(t.Context(), x.src); err != nil || e != 2 {
			t.Errorf("before epoch %d, with one that may have begun: %d, %v, want 2", x.src.Epoch, e, err)
		}
	})
}

// A removal that sleeps at any of its calls, while other terms begin, removes nothing that they need. A claim that never
// began, and wakes up without its contents, does not begin.
func TestRemovalThatSleptHarmsNothing(t *testing.T) {
	for n, more := 1, true; more; n++ {
		bubble(t, fmt.Sprintf("at call %d", n), func(t *testing.T) {
			d := newDisk(t)
			for range 2 {
				x := begin(t, d, 1)
				x.fill(10)
				x.checkpoint()
				x.fill(3)
				x.kill()
			}
			asleep := start(t, d, 2).claim()
			src, err := asleep.FenceOlder(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a, err := asleep.Scan(t.Context(), src, nil)
			if err != nil {
				t.Fatal(err)
			}
			y := begin(t, d, 3)
			if y.r.Epoch() != 4 || y.src.Epoch != 2 {
				t.Fatalf("epoch %d adopts from %d", y.r.Epoch(), y.src.Epoch)
			}
			gate := volumetest.NewGate()
			y.host.SetHook(volumetest.AtOp(volumetest.OpRemove, "epochs/", n, volumetest.Pause(gate)))
			done := make(chan error, 1)
			go func() { done <- y.r.RemoveOlder(y.src, y.src.Epoch) }()
			synctest.Wait()
			select {
			case <-gate.Arrived():
			case err := <-done:
				if more = false; err != nil {
					t.Error(err)
				}
				return
			}
			var hash uint64
			for range 2 {
				z := begin(t, d, 1)
				z.fill(10)
				z.checkpoint()
				z.fill(3)
				hash = z.table.Hash()
				z.kill()
			}
			time.Sleep(time.Hour)
			gate.Resume()
			if err := <-done; err != nil {
				t.Errorf("removal: %v", err)
			}
			if _, err := asleep.Adopt(a); err == nil {
				err = asleep.WriteStart(a.End)
				if !errors.Is(err, volume.ErrFenced) {
					t.Errorf("a claim that was passed over began: %v", err)
				}
			}
			y.kill()
			usable(t, d, hash)
		})
	}
}

// Where there are no hard links a takeover copies what it adopts. However much that is, no call of
// it takes as long as one that hangs: another server would take over from it, and copy the same.
func TestATakeoverThatCopiesDoesNotLookLikeOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(3000)
		x.checkpoint()
		x.kill()
		s := start(t, d, 2)
		r := s.claim()
		s.host.SetHook(func(c volumetest.Call) volumetest.Action {
			switch c.Op {
			case volumetest.OpLink:
				return volumetest.FailBefore(syscall.EPERM)
			case volumetest.OpWriteAt:
				time.Sleep(time.Duration(c.Length) * 10 * time.Microsecond) // 100 kB a second
			}
			return volumetest.Proceed()
		})
		longest := time.Duration(0)
		over := make(chan struct{})
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for {
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
					longest = max(longest, r.Unanswered(time.Now()))
				}
			}
		}()
		if _, err := s.takeOver(r, nil); err != nil {
			t.Error(err)
		}
		close(over)
		<-watched
		if most := cluster.DefaultTiming().StorageTimeout; longest > most {
			t.Errorf("a call took %v; after %v another server takes over", longest, most)
		}
	})
}
