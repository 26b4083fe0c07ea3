// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// warmed is a term with a base, closed segments behind it and a warm table in the
// open one, some records before the end.
func warmed(t *testing.T, d *volumetest.Disk, between func(x *term)) (x *term, warm *volume.WarmState) {
	t.Helper()
	x = begin(t, d, 1)
	x.fill(5)
	x.checkpoint()
	x.fill(30)
	between(x)
	x.fill(10)
	s := x.snapshot()
	x.fill(2)
	return x, &volume.WarmState{At: s.At, Table: s.Table}
}

// reads counts the reads of segments or checkpoints of epoch 1.
func reads(h *volumetest.Host, name string) (n int) {
	for _, c := range h.Trace() {
		if c.Op == volumetest.OpReadAt && strings.HasPrefix(c.Name, "epochs/0000000001/"+name) {
			n++
		}
	}
	return n
}

func TestWarmTakeoverReadsTheTailOnly(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x, warm := warmed(t, d, func(*term) {})
		hash, base := x.table.Hash(), x.a.Base
		x.kill()
		// Nobody reads in here, so nobody minds.
		unread := slices.Sorted(maps.Keys(d.Files("epochs/0000000001/wal-")))[2]
		content := d.Files("epochs/0000000001/wal-")[unread][4170]
		write := func(b byte) {
			if err := d.Write(unread, 4170, []byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		write(content ^ 1)
		next := start(t, d, 2)
		y, err := next.takeOver(next.claim(), warm)
		if err != nil {
			t.Fatal(err)
		}
		if !y.a.Warm || y.a.Unread == nil || y.a.Base == base || y.table.Hash() != hash || y.a.Records != 2 {
			t.Errorf("warm %t, unread %t, base %d, %d records", y.a.Warm, y.a.Unread != nil, y.a.Base, y.a.Records)
		}
		if n := reads(next.host, "checkpoint-"); n != 2 {
			t.Errorf("%d reads of the base, want one of each file", n)
		}
		if y.a.LogBytes < 64<<10 || y.a.BaseBytes == 0 {
			t.Errorf("%d bytes of log, %d of base", y.a.LogBytes, y.a.BaseBytes)
		}
		_, err = y.r.VerifyUnread(y.a.Unread, func() {})
		if damage, ok := errors.AsType[*wal.ScanError](err); !ok || damage.File != path.Base(unread) || damage.Offset != 4096 {
			t.Errorf("the damage of %s was not found: %v %+v", unread, err, y.a.Unread)
		}
		write(content)
		if damaged, err := y.r.VerifyUnread(y.a.Unread, func() {}); err != nil || damaged != nil {
			t.Error(damaged, err)
		}
		y.fill(1)
		hash = y.table.Hash()
		y.kill()
		usable(t, d, hash) // all of it was adopted, not only what was read
	})
}

func TestWarmTakeoverReadsEverythingWhere(t *testing.T) {
	for _, test := range []struct {
		name    string
		between func(x *term)
		spoil   func(d *volumetest.Disk, w *volume.WarmState) error
		warm    bool
	}{
		{"a file may lack an append", func(x *term) {
			g := x.do(locktable.Request{Op: locktable.OpAcquire, Lock: "l", TTL: 60e9}, locktable.FileFacts{})
			x.do(locktable.Request{Op: locktable.OpAppend, Lock: "l", Token: g.Token, File: "f", Data: []byte("x")}, locktable.FileFacts{Inode: 7})
		}, func(*volumetest.Disk, *volume.WarmState) error { return nil }, true},
		{"the chain value differs", func(*term) {}, func(_ *volumetest.Disk, w *volume.WarmState) error {
			w.At.Chain ^= 1
			return nil
		}, false},
		{"the base's first line is damaged", func(*term) {}, func(d *volumetest.Disk, w *volume.WarmState) error {
			return d.Write("epochs/0000000001/checkpoint-5/lock_state.json", 3, []byte("X"))
		}, true},
	} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			x, warm := warmed(t, d, test.between)
			hash := x.table.Hash()
			x.kill()
			if err := test.spoil(d, warm); err != nil {
				t.Fatal(err)
			}
			next := start(t, d, 2)
			y, err := next.takeOver(next.claim(), warm)
			if err != nil {
				t.Fatal(err)
			}
			if y.a.Unread != nil || y.a.Warm != test.warm || y.table.Hash() != hash || y.a.Records < 40 {
				t.Errorf("warm %t, unread %t, %d records", y.a.Warm, y.a.Unread != nil, y.a.Records)
			}
			if redo := len(y.a.Redo); (redo > 0) != (test.name == "a file may lack an append") {
				t.Errorf("%d appends to redo", redo)
			}
		})
	}
}

func TestUnreadCheckpointIsVerified(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(5)
		x.checkpoint()
		lsn := x.table.LSN()
		u := &volume.UnverifiedLog{Bases: []wal.Position{{LSN: lsn}}}
		for _, name := range []string{"lock_state.json", "processed_requests.log"} {
			name := fmt.Sprintf("epochs/0000000001/checkpoint-%d/%s", lsn, name)
			content := d.Files("epochs/")[name]
			for at := 0; at < len(content); at += 7 {
				if err := d.Write(name, int64(at), []byte{content[at] ^ 4}); err != nil {
					t.Fatal(err)
				}
				if damaged, err := x.r.VerifyUnread(u, func() {}); err == nil || !slices.Equal(damaged, []cluster.LSN{lsn}) {
					t.Errorf("%s: byte %d may change", name, at)
				}
				if err := d.Write(name, int64(at), content[at:at+1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if damaged, err := x.r.VerifyUnread(u, func() {}); err != nil || damaged != nil {
			t.Error(damaged, err)
		}
	})
}

// Whole receipts of another checkpoint are not those of this one.
func TestReceiptsOfAnotherCheckpointAreDamage(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		name := func() string {
			return fmt.Sprintf("epochs/0000000001/checkpoint-%d/processed_requests.log", x.table.LSN())
		}
		x.fill(5)
		x.checkpoint()
		first := name()
		x.fill(5)
		x.checkpoint()
		if err := errors.Join(d.Remove(name()), d.Write(name(), 0, d.Files("epochs/")[first])); err != nil {
			t.Fatal(err)
		}
		u := &volume.UnverifiedLog{Bases: []wal.Position{{LSN: x.table.LSN()}}}
		if damaged, err := x.r.VerifyUnread(u, func() {}); err == nil || len(damaged) != 1 {
			t.Errorf("damaged are %v, %v", damaged, err)
		}
	})
}

// A base that a warm takeover adopted unread may be damaged behind its first lines.
// What a cold takeover falls back on then is there, whenever the power went.
func TestWarmTakeoverKeepsWhatAColdOneFallsBackOn(t *testing.T) {
	for _, test := range []struct {
		name  string
		bases int
	}{{"the base before", 2}, {"the beginning of the log", 1}} {
		bubble(t, test.name, func(t *testing.T) {
			d := newDisk(t)
			x, _ := warmed(t, d, func(x *term) {
				for range test.bases - 1 {
					x.checkpoint()
					x.fill(30)
				}
			})
			s := x.snapshot()
			x.fill(2)
			x.kill()
			rotten := fmt.Sprintf("epochs/0000000001/checkpoint-%d/processed_requests.log", newestBase(d, 1))
			if err := d.Write(rotten, 100, []byte("X")); err != nil {
				t.Fatal(err)
			}
			next := start(t, d, 2)
			y, err := next.takeOver(next.claim(), &volume.WarmState{At: s.At, Table: s.Table})
			if err != nil {
				t.Fatal(err)
			}
			if y.a.Unread == nil || len(y.a.Unread.Bases) != test.bases || y.a.Base != newestBase(d, 1) {
				t.Fatalf("adopted unread: %+v, base %d", y.a.Unread, y.a.Base)
			}
			y.fill(3)
			hash := y.table.Hash()
			usable(t, d.DurableClone(rand.New(rand.NewPCG(1, 1))), hash)
			// Nor is it lost where another warm takeover comes first, and removes the rest.
			s = y.snapshot()
			y.kill()
			next = start(t, d, 3)
			z, err := next.takeOver(next.claim(), &volume.WarmState{At: s.At, Table: s.Table})
			if err != nil {
				t.Fatal(err)
			}
			if err := z.r.RemoveOlder(z.src, z.src.Epoch); err != nil {
				t.Fatal(err)
			}
			z.kill()
			usable(t, d, hash)
		})
	}
}

// newestBase is the LSN of the newest checkpoint of an epoch.
func newestBase(d *volumetest.Disk, e int) (newest cluster.LSN) {
	for name := range d.Files(fmt.Sprintf("epochs/%010d/checkpoint-", e)) {
		var lsn cluster.LSN
		fmt.Sscanf(path.Base(path.Dir(name)), "checkpoint-%d", &lsn) //nolint:errcheck // 0 is none
		newest = max(newest, lsn)
	}
	return newest
}

// Damaged checkpoints go as soon as there is a newer one, good ones stay.
func TestDamagedCheckpointsAreNotKept(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		x := begin(t, newDisk(t), 1)
		var made []cluster.LSN
		for range 3 {
			x.fill(1)
			x.checkpoint()
			made = append(made, x.table.LSN())
		}
		if err := x.r.RemoveCheckpoints(made[1]); err != nil {
			t.Fatal(err)
		}
		if got, err := x.r.PreviousBase(); err != nil || got != made[0] {
			t.Errorf("the base before is %d, %v, want %d", got, err, made[0])
		}
	})
}
