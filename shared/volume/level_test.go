// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/backup"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

// newer is a record of a binary that knows one level more.
func (x *term) newer() *locktable.Record {
	return &locktable.Record{LSN: x.table.LSN() + 1, Epoch: x.r.Epoch(), Kind: locktable.KindLevel, Level: locktable.MaxLevel + 1, Version: "9.8"}
}

// raises are the ways in which a volume shows that a newer binary wrote it. Each ends the term.
func raises() map[string]func(*testing.T, *term, *volumetest.Disk) {
	record := func(t *testing.T, x *term) {
		var b wal.Batch
		b.Reset(x.log.Position())
		b.Add(x.newer().AppendHeader(nil), nil)
		if err := x.log.Append(&b); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint := func(t *testing.T, x *term) {
		e := x.snapshot().Export()
		all := e.Entities
		e.Entities = func(yield func(locktable.Entity, error) bool) {
			for entity, err := range all {
				if !yield(entity, err) {
					return
				}
			}
			yield(locktable.Entity{Level: &locktable.LevelState{Level: locktable.MaxLevel + 1, Version: "9.8"}}, nil)
		}
		if _, err := x.r.WriteCheckpoint(e); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(*testing.T, *term, *volumetest.Disk){
		"record": func(t *testing.T, x *term, _ *volumetest.Disk) {
			record(t, x)
			x.kill()
		},
		"record and checkpoint": func(t *testing.T, x *term, _ *volumetest.Disk) {
			record(t, x)
			checkpoint(t, x)
			x.kill()
		},
		"checkpoint": func(t *testing.T, x *term, d *volumetest.Disk) { // the log before it is gone
			checkpoint(t, x)
			x.kill()
			for name := range d.Files("epochs/0000000001/wal-") {
				if err := d.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		},
		"header": func(t *testing.T, x *term, d *volumetest.Disk) {
			x.kill()
			all := headed(t, d)
			newerHeader(t, d, all[len(all)-1])
		},
		"header behind damage": func(t *testing.T, x *term, d *volumetest.Disk) {
			x.kill()
			all := headed(t, d)
			newerHeader(t, d, all[len(all)-1])
			damageHeader(t, d, all[0])
		},
		"header before damage": func(t *testing.T, x *term, d *volumetest.Disk) {
			x.kill()
			all := headed(t, d)
			newerHeader(t, d, all[0])
			damageHeader(t, d, all[len(all)-1])
		},
		"CLUSTER": func(t *testing.T, x *term, d *volumetest.Disk) {
			x.kill()
			if err := d.BeginAt(locktable.MaxLevel + 1); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// headed returns the names of the segments of epoch 1 that have a header, the oldest first.
func headed(t *testing.T, d *volumetest.Disk) (names []string) {
	t.Helper()
	for name, content := range d.Files("epochs/0000000001/wal-") {
		if _, err := wal.DecodeSegmentHeader(content[:wal.BlockSize]); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) < 2 {
		t.Fatalf("segments with a header: %v", names)
	}
	return names
}

// newerHeader has a segment be one of a binary that knows one level more.
func newerHeader(t *testing.T, d *volumetest.Disk, name string) {
	t.Helper()
	content, err := d.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := wal.DecodeSegmentHeader(content[:wal.BlockSize])
	if err != nil {
		t.Fatal(err)
	}
	h.FeatureLevel = volume.FeatureLevel + 1
	if err := d.Write(name, 0, wal.AppendSegmentHeader(nil, h)); err != nil {
		t.Fatal(err)
	}
}

func damageHeader(t *testing.T, d *volumetest.Disk, name string) {
	t.Helper()
	if err := d.Write(name, 8, []byte("damage")); err != nil {
		t.Fatal(err)
	}
}

// raised returns a volume that this binary is too old for.
func raised(t *testing.T, raise func(*testing.T, *term, *volumetest.Disk)) *volumetest.Disk {
	t.Helper()
	d := newDisk(t)
	x := begin(t, d, 1)
	x.fill(300)
	raise(t, x, d)
	return d
}

// TestNoServerServesARaisedCluster: a binary that is too old for the level of the cluster says which one it takes, wherever it
// finds the level: in the log, in a checkpoint behind which the log has been removed, and in both.
func TestNoServerServesARaisedCluster(t *testing.T) {
	for _, name := range []string{"record", "checkpoint", "record and checkpoint"} {
		bubble(t, name, func(t *testing.T) {
			d := raised(t, raises()[name])
			s := start(t, d, 2)
			_, err := s.takeOver(s.claim(), nil)
			if !errors.Is(err, locktable.ErrUnknownLevel) || !strings.Contains(err.Error(), "run holdfast 9.8 or a newer one") {
				t.Errorf("taken over: %v", err)
			}
			if _, _, err := start(t, d, 3).vol.Preview(t.Context()); !errors.Is(err, volume.ErrTooOld) {
				t.Errorf("a look before a claim: %v", err)
			}
		})
	}
}

// readers are what reads a volume, by the command that does.
func readers() map[string]func(*testing.T, *volumetest.Disk) error {
	return map[string]func(*testing.T, *volumetest.Disk) error{
		"recover": func(t *testing.T, d *volumetest.Disk) error {
			_, err := recovery.NewPlan(t.Context(), host(d, 9), recoverOptions())
			return err
		},
		"recover --yes": func(t *testing.T, d *volumetest.Disk) error {
			_, err := recovery.Run(t.Context(), host(d, 9), recoverOptions())
			return err
		},
		"ls --volume": func(t *testing.T, d *volumetest.Disk) error {
			began := time.Now()
			_, err := volume.ReadState(t.Context(), host(d, 9), nil)
			if time.Since(began) > 0 {
				t.Error("ls --volume read it again and again")
			}
			return err
		},
		"backup": func(t *testing.T, d *volumetest.Disk) error {
			began := time.Now()
			_, err := backup.Run(t.Context(), host(d, 9), host(volumetest.New(2), 1), backup.Options{})
			if time.Since(began) > 0 {
				t.Error("backup read it again and again")
			}
			return err
		},
		"server": func(t *testing.T, d *volumetest.Disk) error {
			h := host(d, 9)
			c, err := volume.ReadCluster(h)
			if err == nil {
				err = volume.CheckLevel(t.Context(), h, c)
			}
			return err
		},
		"fsck": func(t *testing.T, d *volumetest.Disk) error {
			r := checked(t, d)
			if len(r.Findings) != 1 || r.Errors != 1 || r.Findings[0].Code != "too-old" || strings.Contains(r.Findings[0].Advice, "recover") {
				t.Errorf("fsck: %+v", r.Findings)
				return nil
			}
			return fmt.Errorf("%w: %s", volume.ErrTooOld, r.Findings[0].Problem)
		},
	}
}

// TestNothingIsDamagedForAnOlderBinary: what reads a volume tells that this binary is too old for it, and changes nothing. It calls
// nothing damaged, and so advises no repair: a recovery would cut off what it does not know, and everything after it.
func TestNothingIsDamagedForAnOlderBinary(t *testing.T) {
	for how, raise := range raises() {
		for command, run := range readers() {
			if strings.Contains(how, "damage") && !strings.HasPrefix(command, "recover") {
				continue // there is damage: to say so is no mistake, but to cut is one
			}
			bubble(t, command+", "+how, func(t *testing.T) {
				d := raised(t, raise)
				before := d.Snapshot()
				err := run(t, d)
				if !errors.Is(err, volume.ErrTooOld) || errors.Is(err, volume.ErrDamaged) || strings.Contains(err.Error(), "fsck") || strings.Contains(err.Error(), "recover") {
					t.Errorf("it says: %v", err)
				}
				after := d.Snapshot()
				if command == "recover --yes" { // it locks guards, which it makes
					for name := range after {
						if strings.HasPrefix(name, "servers/") && strings.HasSuffix(name, ".lock") {
							delete(after, name)
							delete(before, name)
						}
					}
				}
				if !sameDisk(before, after) {
					t.Error("it changed something")
				}
			})
		}
	}
}

// TestDamageIsNoNewerLevel: a checkpoint that seems to be of a newer binary, and does not have its sum, is damaged: a newer one
// would not mend it.
func TestDamageIsNoNewerLevel(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.BaseLevel); err != nil {
			t.Fatal(err)
		}
		x := begin(t, d, 1)
		x.fill(3)
		x.apply(x.table.DecideLevel(locktable.MaxLevel, "v4", x.r.Epoch(), nil))
		x.checkpoint()
		x.kill()
		flipped := 0
		for name, content := range d.Files("epochs/0000000001/checkpoint-") {
			if i := bytes.Index(content, fmt.Appendf(nil, `{"level":{"level":%d`, locktable.MaxLevel)); i >= 0 {
				flipped++
				if err := d.Write(name, int64(i+len(`{"level":{"level":`)), fmt.Append(nil, locktable.MaxLevel+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if flipped != 1 {
			t.Fatalf("%d checkpoints name the level", flipped)
		}
		y := begin(t, d, 2) // from the log
		if n, _ := y.table.Level(); n != locktable.MaxLevel {
			t.Errorf("adopted level %d", n)
		}
		y.kill()
		h := host(d, 9)
		c, err := volume.ReadCluster(h)
		if err == nil {
			err = volume.CheckLevel(t.Context(), h, c)
		}
		if err != nil {
			t.Errorf("a server does not start: %v", err)
		}
	})
}

// headers returns the levels in the headers of an epoch's segments.
func headers(t *testing.T, d *volumetest.Disk, epoch string) (levels []uint32) {
	t.Helper()
	for name, content := range d.Files("epochs/" + epoch + "/wal-") {
		h, err := wal.DecodeSegmentHeader(content[:wal.BlockSize])
		if errors.Is(err, wal.ErrZero) {
			continue // made ahead
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		levels = append(levels, h.FeatureLevel)
	}
	return levels
}

// TestSegmentsNameTheLevelOfTheCluster, and not that of the binary: until it is raised an older one takes the log over.
func TestSegmentsNameTheLevelOfTheCluster(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		d := newDisk(t)
		if err := d.BeginAt(locktable.BaseLevel); err != nil {
			t.Fatal(err)
		}
		want := func(epoch string, level uint32) {
			t.Helper()
			all := headers(t, d, epoch)
			if len(all) == 0 {
				t.Errorf("epoch %s has no segment", epoch)
			}
			for _, got := range all {
				if got != level {
					t.Errorf("epoch %s: a segment names level %d, the cluster has %d", epoch, got, level)
				}
			}
		}
		x := begin(t, d, 1)
		x.fill(300)
		want("0000000001", locktable.BaseLevel)
		x.apply(x.table.DecideLevel(locktable.MaxLevel, "v4", x.r.Epoch(), nil))
		x.checkpoint()
		x.kill()
		y := begin(t, d, 2)
		y.fill(3)
		if n, _ := y.table.Level(); n != locktable.MaxLevel || y.r.Level(y.table) != locktable.MaxLevel {
			t.Errorf("adopted level %d", n)
		}
		y.kill()
		newest := headers(t, d, "0000000002")
		for _, n := range newest {
			if n == locktable.MaxLevel {
				return
			}
		}
		t.Errorf("the segments of a term that began behind the raise name %d", newest)
	})
}
