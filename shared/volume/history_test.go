// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// holding is a lock that is held, with a protected file under it.
type holding struct {
	lock  cluster.LockName
	file  cluster.FileName
	token cluster.Token
}

// acquire takes a lock for a client of the term's own.
func (x *term) acquire(lock cluster.LockName) cluster.Token {
	x.t.Helper()
	out := x.do(locktable.Request{Op: locktable.OpAcquire, Lock: lock, TTL: time.Minute}, locktable.FileFacts{})
	if out.Status != cluster.StatusOK {
		x.t.Fatalf("acquire %s: %v %s", lock, out.Status, out.Message)
	}
	return out.Token
}

// append commits an append and writes it, as a primary does.
func (x *term) append(h holding, data string) locktable.Outcome {
	x.t.Helper()
	p, err := x.r.AdoptProtected(h.file)
	if err != nil {
		x.t.Fatal(err)
	}
	out := x.commitAppend(h, data, p.Inode())
	if err := p.WriteAt([]byte(data), out.Offset); err != nil {
		x.t.Fatal(err)
	}
	if err := p.Datasync(); err != nil {
		x.t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		x.t.Fatal(err)
	}
	return out
}

// commitAppend logs an append that its file lacks.
func (x *term) commitAppend(h holding, data string, inode uint64) locktable.Outcome {
	x.t.Helper()
	out := x.do(locktable.Request{Op: locktable.OpAppend, Lock: h.lock, Token: h.token, File: h.file, Data: []byte(data), CRC: crc32.Checksum([]byte(data), crc32.MakeTable(crc32.Castagnoli))}, locktable.FileFacts{Inode: inode})
	if out.Status != cluster.StatusOK {
		x.t.Fatalf("append to %s: %v %s", h.file, out.Status, out.Message)
	}
	return out
}

// redo writes what files lack, as a primary does after START.
func (x *term) redo() {
	x.t.Helper()
	for _, rec := range x.a.Redo {
		p, err := x.r.OpenProtected(rec.File)
		if err != nil {
			x.t.Fatal(err)
		}
		if err := p.WriteAt(rec.Data, rec.Offset); err != nil {
			x.t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			x.t.Fatal(err)
		}
	}
}

// lived is a volume with a past: four terms, one burned claim, rotations,
// checkpoints, views, and protected files.
//
//	epoch 1  two checkpoints, removed segments
//	epoch 2  adopted segments of epoch 1
//	epoch 3  burned
//	epoch 4  the newest: appends in its log, the last one not in its file yet
type lived struct {
	disk  *volumetest.Disk
	hold  holding
	table *locktable.Table // at the end
	end   cluster.LSN
}

func live(t *testing.T) *lived {
	t.Helper()
	d := newDisk(t)
	h := holding{lock: "billing/job", file: "dir/f"}
	x := begin(t, d, 1)
	h.token = x.acquire(h.lock)
	x.append(h, "first\n")
	x.fill(9)
	x.checkpoint()
	x.append(h, "second\n")
	x.fill(9)
	x.checkpoint()
	x.fill(3)
	x.kill()

	y := begin(t, d, 2)
	y.redo()
	y.fill(6)
	y.append(h, "between\n")
	y.fill(5)
	y.kill()
	burner := start(t, d, 1)
	burner.claim()
	burner.host.Kill()

	z := begin(t, d, 3)
	z.redo()
	z.fill(3)
	z.checkpoint()
	z.append(h, "third\n")
	z.do(locktable.Request{Op: locktable.OpOpenClient, Nonce: 77}, locktable.FileFacts{})
	if err := z.r.PublishViews(z.snapshot().Export(), time.Now()); err != nil {
		t.Fatal(err)
	}
	z.append(h, "fourth\n")
	z.commitAppend(h, "fifth\n", 0)
	l := &lived{disk: d, hold: h, table: z.table.Clone(), end: z.table.LSN()}
	z.kill()
	return l
}

// fsck is what it finds, without infos.
func checked(t *testing.T, d *volumetest.Disk) *fsck.Report {
	t.Helper()
	r, err := fsck.Run(t.Context(), host(d, 8), fsck.Options{Dir: "/v"})
	if err != nil {
		t.Fatalf("fsck: %v", err)
	}
	return r
}

// sound fails the test where fsck finds an error.
func sound(t *testing.T, d *volumetest.Disk) {
	t.Helper()
	if r := checked(t, d); r.Errors > 0 {
		t.Errorf("fsck finds errors: %s", worst(r))
	}
}

// worst lists the findings that are more than infos.
func worst(r *fsck.Report) string {
	var b bytes.Buffer
	for _, f := range r.Findings {
		if f.Severity != fsck.SeverityInfo {
			fmt.Fprintf(&b, "%s %s %s+%d: %s; ", f.Severity, f.Code, f.Path, f.Offset, f.Problem)
		}
	}
	return b.String()
}
