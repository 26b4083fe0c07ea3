// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/wal"
)

func TestFsckOfAWholeVolumeFindsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		r := checked(t, l.disk)
		if text := worst(r); text != "" || r.Running || r.Epoch != 4 || r.LSN != l.end || r.Files != 1 {
			t.Errorf("%s: %+v", text, r)
		}
		if !slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return f.Code == "file-behind" }) {
			t.Errorf("the append that its file lacks is not told: %+v", r.Findings)
		}
	})
}

// The places of the volume that live makes.
const (
	newest      = "epochs/0000000004/"
	openSegment = newest + "wal-00000000000000000042.log"
	closedOne   = newest + "wal-00000000000000000035.log"
	protected   = "files/dir/f"
)

// damage is an operator's mistake or a disk's, and what fsck says of it.
type damage struct {
	name string
	do   func(d *volumetest.Disk) error
	want string // severity, code and path
}

// flip changes one bit.
func flip(name string, off int64) func(*volumetest.Disk) error {
	return func(d *volumetest.Disk) error {
		b, err := d.ReadFile(name)
		if err != nil {
			return err
		}
		return d.Write(name, off, []byte{b[off] ^ 1})
	}
}

func remove(name string) func(*volumetest.Disk) error {
	return func(d *volumetest.Disk) error { return d.Remove(name) }
}

func truncate(name string, size int64) func(*volumetest.Disk) error {
	return func(d *volumetest.Disk) error { return d.Truncate(name, size) }
}

func write(name string, off int64, text string) func(*volumetest.Disk) error {
	return func(d *volumetest.Disk) error { return d.Write(name, off, []byte(text)) }
}

// foreign has a file name another cluster. CLUSTER is another file than epoch 0's then.
func foreign(name string) func(*volumetest.Disk) error {
	return func(d *volumetest.Disk) error {
		c, err := volume.ReadCluster(host(d, 7))
		if err != nil {
			return err
		}
		b, err := d.ReadFile(name)
		if err != nil {
			return err
		}
		id, other := []byte(c.ID.String()), []byte(strings.Repeat("7", len(c.ID.String())))
		return errors.Join(d.Remove(name), d.Write(name, 0, bytes.ReplaceAll(b, id, other)))
	}
}

func damages() []damage {
	return slices.Concat(epochDamages(), logDamages(), fileDamages(), strangers(), auditDamages())
}

func epochDamages() []damage {
	zeros := string(make([]byte, vfs.BlockSize))
	return []damage{
		{"CLUSTER gone", remove("CLUSTER"), "error cluster-missing CLUSTER"},
		{"CLUSTER garbage", func(d *volumetest.Disk) error {
			return errors.Join(d.Remove("CLUSTER"), d.Write("CLUSTER", 0, []byte("###")))
		}, "error cluster-damaged CLUSTER"},
		{"CLUSTER and what epoch 0 knows of it garbage", write("CLUSTER", 0, "###"), "error cluster-damaged CLUSTER"}, // they are one file
		{"an old epoch gone", remove("epochs/0000000001"), "error epoch-missing epochs/0000000001"},
		{"a burned epoch gone", remove("epochs/0000000003"), "error epoch-missing epochs/0000000003"},
		{"the newest fence gone", remove(newest + "fence"), "error fence-missing " + newest + "fence"},
		{"the newest fence short", truncate(newest+"fence", 100), "error fence-damaged " + newest + "fence"},
		{"START torn", write(newest+"fence", layout.FenceSpacing+100, "x"), "error start-damaged " + newest + "fence"},
		{"an old fence gone", remove("epochs/0000000001/fence"), "warning fence-missing epochs/0000000001/fence"},
		{"an old START torn", write("epochs/0000000001/fence", layout.FenceSpacing+100, "x"), "warning start-damaged epochs/0000000001/fence"},
		{"an old fence flag cleared", write("epochs/0000000002/fence", 0, zeros), "error unfenced epochs/0000000002/fence"},
		{"an old fence flag damaged", flip("epochs/0000000002/fence", 9), "warning flag-damaged epochs/0000000002/fence"},
		{"bytes between a fence's blocks", write(newest+"fence", 9000, "x"), "warning fence-bytes " + newest + "fence"},
		{"claim.json gone", remove(newest + "claim.json"), "warning claim-damaged " + newest + "claim.json"},
		{"another claim.json", func(d *volumetest.Disk) error {
			b, err := d.ReadFile(newest + "claim.json")
			if err != nil {
				return err
			}
			return d.Write(newest+"claim.json", 0, bytes.Replace(b, []byte(`"nonce":"`), []byte(`"nonce":"0`), 1)[:len(b)])
		}, "warning nonce-differs " + newest + "claim.json"},
		{"claim.json of another cluster", foreign(newest + "claim.json"), "warning claim-foreign " + newest + "claim.json"},
		{"CLUSTER of another", foreign("CLUSTER"), "error cluster-differs CLUSTER"},
		{"all STARTs gone", func(d *volumetest.Disk) error {
			for _, e := range []string{"0", "1", "2", "4"} {
				if err := d.Write("epochs/000000000"+e+"/fence", layout.FenceSpacing, []byte(zeros)); err != nil {
					return err
				}
			}
			return nil
		}, "error start-missing epochs"},
	}
}

func logDamages() []damage {
	return []damage{
		{"the open segment gone", remove(openSegment), "error log-damaged " + openSegment},
		{"a closed segment gone", remove(closedOne), "error log-damaged " + newest + "wal-00000000000000000030.log"},
		{"a frame flipped", flip(openSegment, 4096+70), "error log-damaged " + openSegment},
		{"a segment header flipped", flip(openSegment, 20), "error log-damaged " + openSegment},
		{"a segment short", truncate(openSegment, 8192), "error log-damaged " + openSegment},
		{"bytes behind the end", write(openSegment, 28<<10, "x"), "info torn-tail " + openSegment},
		{"bytes between header and frame", write(openSegment, 1000, "x"), "info padding " + openSegment},
		{"bytes behind a frame", write(openSegment, 8191, "x"), "info padding " + openSegment},
		{"the newest checkpoint flipped", flip(newest+"checkpoint-40/lock_state.json", 300), "warning checkpoint-damaged " + newest + "checkpoint-40"},
		{"its receipts flipped", flip(newest+"checkpoint-40/processed_requests.log", 300), "warning checkpoint-damaged " + newest + "checkpoint-40"},
		{"the adopted log gone", remove("epochs/0000000002/wal-00000000000000000030.log"), "warning adopted-log epochs/0000000002/wal-00000000000000000023.log"},
		{"START of another log", func(d *volumetest.Disk) error {
			block := startBlock(4, wal.Position{LSN: 30, Chain: 1})
			return d.Write(newest+"fence", layout.FenceSpacing, block)
		}, "error start-differs " + newest + "fence"},
		{"a view flipped", flip("lock_state.json", 300), "warning view-damaged lock_state.json"},
	}
}

func fileDamages() []damage {
	return []damage{
		{"a protected file gone", remove(protected), "error file-missing " + protected},
		{"a protected file short", truncate(protected, 8), "error file-short " + protected},
		{"a protected file long", write(protected, 45, "foreign"), "error file-long " + protected},
		{"foreign bytes behind the base", write(protected, 22, "X"), "error file-foreign " + protected},
		{"foreign bytes before the base", write(protected, 2, "X"), "error file-foreign " + protected},
		{"a hole", write(protected, 15, "\x00\x00"), "error file-hole " + protected},
		{"a protected file replaced", func(d *volumetest.Disk) error {
			b, err := d.ReadFile(protected)
			if err == nil {
				err = d.Remove(protected)
			}
			if err == nil {
				err = d.Write(protected, 0, b)
			}
			return err
		}, "error file-inode " + protected},
		{"a protected file linked", func(d *volumetest.Disk) error { return host(d, 7).Link(protected, "files/other") }, "error file-links " + protected},
		{"a directory for a protected file", func(d *volumetest.Disk) error {
			if err := d.Remove(protected); err != nil {
				return err
			}
			return d.Mkdir(protected)
		}, "error file-type " + protected},
	}
}

func auditDamages() []damage {
	return []damage{
		{"an audit that others may read", func(d *volumetest.Disk) error { return host(d, 7).Mkdir("audit") }, "warning audit-exposed audit"},
		{"a file of the audit that others may read", func(d *volumetest.Disk) error {
			h := host(d, 7)
			return errors.Join(h.MkdirPrivate("audit"), vfs.CreateFile(h, "audit/1-2026-11-28-000001.jsonl", []byte("{}\n")))
		}, "warning audit-exposed audit"},
		{"a name in the audit", func(d *volumetest.Disk) error {
			h := host(d, 7)
			return errors.Join(h.MkdirPrivate("audit"), vfs.WriteFile(h, "audit/notes", vfs.FlagCreate|vfs.FlagPrivate, nil))
		}, "info unknown-name audit/notes"},
	}
}

func strangers() []damage {
	return []damage{
		{"an unbound file", write("files/mine", 0, "x"), "info file-unbound files/mine"},
		{"an unknown name", write("notes.txt", 0, "x"), "info unknown-name notes.txt"},
		{"an unknown epoch", write("epochs/old/x", 0, "x"), "info unknown-name epochs/old"},
		{"an unknown name in an epoch", write(newest+"core", 0, "x"), "info unknown-name " + newest + "core"},
		{"an unfinished checkpoint", write(newest+"checkpoint-50.tmp/x", 0, "x"), "info leftover " + newest + "checkpoint-50.tmp"},
		{"a forgotten claim", write("servers/1.00ff.claim/claim.json", 0, "{}"), "info leftover servers/1.00ff.claim"},
		{"a key of a stranger", write("servers/7.tls-"+key(1).String(), 0, "x"), "info unknown-name servers/7.tls-" + key(1).String()},
		{"secrets that others may read", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Expose("secrets/ca.key"))
		}, "warning secret-exposed secrets"},
		{"an unfinished offer", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Remove("ca.crt"))
		}, "warning authority-unfinished ca.crt"},
		{"an authority without its key", write("ca.crt", 0, "x"), "error authority-key-missing ca.crt"},
		{"another ca.crt", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Write("ca.crt", 0, []byte("x")))
		}, "error authority-differs ca.crt"},
		{"an empty ca.crt", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Remove("ca.crt"), d.Write("ca.crt", 0, nil))
		}, "error authority-differs ca.crt"},
		{"a damaged key of the authority", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Write("secrets/ca.key", 0, []byte("x")))
		}, "error authority-damaged secrets"},
		{"a signing key that others may read", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Expose("secrets/signing.key"))
		}, "warning secret-exposed secrets"},
		{"an offer that ended before keys.json", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Remove("keys.json"))
		}, "warning signing-unfinished keys.json"},
		{"public keys without their secret", write("keys.json", 0, "x"), "error signing-key-missing keys.json"},
		{"other public keys", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Write("keys.json", 0, []byte("x")))
		}, "error signing-differs keys.json"},
		{"a damaged signing key", func(d *volumetest.Disk) error {
			_, err := offer(host(d, 7), 1)
			return errors.Join(err, d.Write("secrets/signing.key", 0, []byte("x")))
		}, "error signing-damaged secrets"},
		{"a forgotten secret", write("secrets/00.tmp", 0, "x"), "info leftover secrets/00.tmp"},
		{"an unknown secret", write("secrets/mine", 0, "x"), "info unknown-name secrets/mine"},
		{"rules that others may read", func(d *volumetest.Disk) error {
			return errors.Join(publish(host(d, 7), 1, 0), d.Expose("access/0000000001.toml"))
		}, "warning rules-exposed access/0000000001.toml"},
		{"rules that are a directory", func(d *volumetest.Disk) error {
			return errors.Join(publish(host(d, 7), 1, 0), host(d, 7).MkdirPrivate("access/0000000002.toml"))
		}, "error rules-damaged access/0000000002.toml"},
		{"a login/ that others may list", func(d *volumetest.Disk) error { return host(d, 7).Mkdir("login") }, "warning login-mode login"},
		{"forgotten rules", write("access/00.tmp", 0, "x"), "info leftover access/00.tmp"},
		{"unknown rules", write("access/mine", 0, "x"), "info unknown-name access/mine"},
		{"a claim of a stranger", write("servers/7.00ff.claim/claim.json", 0, "{}"), "info unknown-name servers/7.00ff.claim"},
		{"an unfinished recovery", write("servers/recover-00.tmp/fence", 0, "x"), "info leftover servers/recover-00.tmp"},
		{"a device", func(d *volumetest.Disk) error { return d.MakeSpecial("servers/null") }, "warning special-file servers/null"},
		{"history/ gone", remove("history"), "error directory-missing history"},
	}
}

func TestFsckNames(t *testing.T) {
	for _, c := range damages() {
		bubble(t, c.name, func(t *testing.T) {
			l := live(t)
			if err := c.do(l.disk); err != nil {
				t.Fatal(err)
			}
			before := l.disk.Snapshot()
			r := checked(t, l.disk)
			var all []string
			for _, f := range r.Findings {
				all = append(all, string(f.Severity)+" "+f.Code+" "+f.Path)
				if f.Severity != fsck.SeverityInfo && (f.Problem == "" || f.Advice == "" || strings.Contains(f.Advice, "DIR")) {
					t.Errorf("says too little: %+v", f)
				}
			}
			if !slices.Contains(all, c.want) {
				t.Errorf("got %q, want %q", all, c.want)
			}
			if strings.HasPrefix(c.want, "error") != (r.Errors > 0) {
				t.Errorf("%d errors: %s", r.Errors, worst(r))
			}
			if after := l.disk.Snapshot(); !sameDisk(before, after) {
				t.Error("fsck changed something")
			}
		})
	}
}

func sameDisk(a, b map[string]volumetest.State) bool {
	for name, s := range a {
		if b[name] != s {
			return false
		}
	}
	return len(a) == len(b)
}

// meaningless says why a flipped bit there cannot be noticed: see Fsck.
func meaningless(name string, off int64) string {
	switch {
	case strings.HasPrefix(name, "servers/"), strings.HasPrefix(name, "history/"):
		return "nothing reads it"
	case strings.HasSuffix(name, "/claim.json") && name != "epochs/0000000000/claim.json":
		return "who claimed and when is for people"
	case strings.HasPrefix(name, "epochs/0000000000/"), strings.HasPrefix(name, "epochs/0000000001/"), strings.HasPrefix(name, "epochs/0000000003/"):
		return "older than what the newest adopted from"
	case name == "CLUSTER":
		return "addresses are for people to choose"
	case strings.HasPrefix(name, "epochs/0000000002/checkpoint"), strings.HasSuffix(name, "/wal-next.log"):
		return "the next one has its place"
	case name == "epochs/0000000002/wal-00000000000000000035.log":
		return "its records are in the newest's own log"
	}
	return ""
}

func TestNoRandomDamageEscapesFsck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		files := l.disk.Files("")
		var names []string
		for name, b := range files {
			if len(b) > 0 && meaningless(name, 0) == "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		findings := func(r *fsck.Report) (all []string) {
			for _, f := range r.Findings {
				all = append(all, f.Code+" "+f.Path+" "+f.Problem)
			}
			slices.Sort(all)
			return all
		}
		clean := findings(checked(t, l.disk))
		look := func(d *volumetest.Disk, what string, args ...any) {
			t.Helper()
			r, err := fsck.Run(t.Context(), host(d, 8), fsck.Options{})
			if err == nil && slices.Equal(findings(r), clean) {
				t.Errorf(what+": nothing is found", args...)
			}
		}
		rng := rand.New(rand.NewPCG(7, 7))
		for i := range 400 {
			name := names[rng.IntN(len(names))]
			b := files[name]
			d := l.disk.Clone()
			off := rng.Int64N(int64(len(b)))
			var err error
			what := "cut"
			if i%3 == 0 {
				err = d.Truncate(name, off)
			} else {
				what = "flipped"
				err = d.Write(name, off, []byte{b[off] ^ 1<<rng.IntN(8)})
			}
			if err != nil {
				t.Fatal(err)
			}
			look(d, "%s %s at %d of %d", what, name, off, len(b))
		}
		for _, name := range names {
			b := files[name]
			for off := 0; off < len(b); off += vfs.BlockSize {
				to := min(off+vfs.BlockSize, len(b))
				rest := bytes.TrimRight(b[off:], "\x00")
				if len(bytes.Trim(b[off:to], "\x00")) == 0 || name == openSegment && len(rest) <= to-off {
					continue // zeros, or the last frame of the log, which proves nothing of itself
				}
				d := l.disk.Clone()
				if err := d.Write(name, int64(off), make([]byte, to-off)); err != nil {
					t.Fatal(err)
				}
				look(d, "zeroed the block of %s at %d of %d", name, off, len(b))
			}
		}
	})
}

func TestFsckWhileAPrimaryWrites(t *testing.T) {
	l := newDisk(t)
	x := begin(t, l, 1)
	h := holding{lock: "a", file: "f"}
	h.token = x.acquire(h.lock)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			x.fill(1)
			x.append(h, "line\n")
			if i%50 == 0 {
				x.checkpoint()
				if err := x.r.PublishViews(x.snapshot().Export(), time.Now()); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	runs := 0
	for writing := true; writing; runs++ {
		select {
		case <-done:
			writing = false
		default:
		}
		r := checked(t, l)
		if !r.Running || worst(r) != "" {
			t.Errorf("running %v: %s", r.Running, worst(r))
		}
	}
	x.kill()
	sound(t, l)
	t.Logf("%d runs beside 300 appends", runs)
}

// A checkpoint that is whole and not what the log makes is found where the log reaches back
// before it: to the checkpoint before, or to its beginning.
func TestFsckComparesCheckpointsWithTheLog(t *testing.T) {
	for name, before := range map[string]bool{"a good one before it": true, "the only one": false} {
		bubble(t, name, func(t *testing.T) {
			d, other := newDisk(t), newDisk(t)
			x, y := begin(t, d, 1), begin(t, other, 1)
			x.fill(5)
			if before {
				x.checkpoint()
			}
			x.fill(4)
			y.acquire("of/another/history")
			y.fill(8)
			s := x.snapshot()
			s.Table = y.table.Clone()
			if _, err := x.r.WriteCheckpoint(s.Export()); err != nil {
				t.Fatal(err)
			}
			x.fill(9)
			x.kill()
			y.kill()
			if r := checked(t, d); !strings.Contains(worst(r), "error checkpoint-differs epochs/0000000001/checkpoint-9") {
				t.Errorf("fsck finds %q", worst(r))
			}
		})
	}
}

// The log ends before what people were shown.
func TestFsckSeesAViewThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		x.fill(5)
		older := d.Clone()
		x.fill(5)
		if err := x.r.PublishViews(x.snapshot().Export(), time.Now()); err != nil {
			t.Fatal(err)
		}
		x.kill()
		view, err := d.ReadFile("lock_state.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := older.Write("lock_state.json", 0, view); err != nil {
			t.Fatal(err)
		}
		if r := checked(t, older); !strings.Contains(worst(r), "error view-ahead lock_state.json") {
			t.Errorf("fsck finds %q", worst(r))
		}
	})
}

// TestFsckOfAnOlderBinarysCheckpoint: one that was written by a binary which did not keep what is
// kept of files now is what the log makes, and one that lacks it in part is not.
func TestFsckOfAnOlderBinarysCheckpoint(t *testing.T) {
	for name, stripped := range map[string][]cluster.FileName{"by an older binary": {"f", "g"}, "by nobody": {"f"}, "by this one": nil} {
		bubble(t, name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			x.checkpoint()
			f, g := holding{lock: "job", file: "f"}, holding{lock: "job", file: "g"}
			f.token = x.acquire(f.lock)
			g.token = f.token
			x.append(f, "first\n")
			x.append(g, "other\n")
			x.apply(x.table.DecideQuarantine("f", "foreign", x.r.Epoch(), nil))
			if err := host(d, 8).Rename("files/f", "files/f.1"); err != nil {
				t.Fatal(err)
			}
			next, err := x.r.AdoptProtected("f")
			if err != nil {
				t.Fatal(err)
			}
			out := x.do(locktable.Request{Op: locktable.OpRotate, Lock: f.lock, Token: f.token, File: "f"}, locktable.FileFacts{Inode: next.Inode()})
			if out.Status != cluster.StatusOK {
				t.Fatalf("%+v", out)
			}
			s := x.snapshot()
			s.Table, err = locktable.Restore(s.At.LSN, func(yield func(locktable.Entity, error) bool) {
				for e := range x.table.Export() {
					if e.File != nil && slices.Contains(stripped, e.File.Name) {
						e.File.Since, e.File.Lost = 0, nil
					}
					if !yield(e, nil) {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.r.WriteCheckpoint(s.Export()); err != nil {
				t.Fatal(err)
			}
			x.fill(1)
			x.kill()
			r := checked(t, d)
			differs := slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return f.Code == "checkpoint-differs" })
			if differs != (len(stripped) == 1) {
				t.Errorf("%s", worst(r))
			}
		})
	}
}

// Beside a primary that runs, a file that lacks committed bytes and does not grow is told.
func TestFsckBesideAPrimarySeesAFileThatWasCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		x.append(h, "second\n")
		if r := checked(t, d); worst(r) != "" || !r.Running {
			t.Errorf("before: %s", worst(r))
		}
		if err := d.Truncate("files/f", 6); err != nil {
			t.Fatal(err)
		}
		if r := checked(t, d); !strings.Contains(worst(r), "warning file-lags files/f+6: 7 committed bytes") {
			t.Errorf("fsck finds %q", worst(r))
		}
		size := int64(6)
		reader := host(d, 8)
		reader.SetHook(func(c volumetest.Call) volumetest.Action {
			if c.Op == volumetest.OpReadDir && c.Name == "files" && size < 12 {
				if err := d.Write("files/f", size, []byte("second\n"[size-6:size-5])); err != nil {
					t.Error(err)
				}
				size++
			}
			return volumetest.Proceed()
		})
		r, err := fsck.Run(t.Context(), reader, fsck.Options{})
		if err != nil || strings.Contains(worst(r), "file-lags") {
			t.Errorf("a file that is being written: %q, %v", worst(r), err)
		}
		if !slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return f.Code == "changed-meanwhile" }) {
			t.Errorf("nothing says that it changed: %+v", r.Findings)
		}
	})
}

// The history was told of more than the log has.
func TestFsckSeesAHistoryThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		c, err := volume.ReadCluster(host(l.disk, 7))
		if err != nil {
			t.Fatal(err)
		}
		b := history.AppendHead(nil, history.Head{File: history.File{Epoch: 4, N: 1}, Cluster: c.ID.String()})
		for at, ahead := range map[cluster.LSN]bool{l.end: false, l.end + 1: true} {
			if err := l.disk.Write("history/0000000004-000001.jsonl", 0, history.AppendMark(slices.Clone(b), at)); err != nil {
				t.Fatal(err)
			}
			if r := checked(t, l.disk); strings.Contains(worst(r), "error history-ahead history/0000000004-000001.jsonl") != ahead {
				t.Errorf("LSN %d of %d: fsck finds %q", at, l.end, worst(r))
			}
		}
	})
}

// TestFsckSaysOfTheHistoryWhatServersSay: a line that is damaged ends nothing, and one that tells of
// more than the next one is damaged. fsck, a recovery and a takeover agree.
func TestFsckSaysOfTheHistoryWhatServersSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := live(t)
		c, err := volume.ReadCluster(host(l.disk, 7))
		if err != nil {
			t.Fatal(err)
		}
		mark := func(at cluster.LSN) string { return fmt.Sprintf(`{"kind":"mark","upto":%d}`+"\n", at) } // as older binaries wrote it
		head := string(history.AppendHead(nil, history.Head{File: history.File{Epoch: 4, N: 1}, Cluster: c.ID.String()}))
		const name = "history/0000000004-000001.jsonl"
		for what, x := range map[string]struct {
			lines string
			ahead bool
		}{
			"ahead behind a damaged line": {mark(1) + "\x00\n" + mark(l.end+1), true},
			"a lone line too high":        {mark(1) + mark(l.end+900) + mark(2), false},
			"a digit flipped":             {mark(1) + strings.Replace(string(history.AppendMark(nil, 1)), ":1,", ":91,", 1), false},
		} {
			if err := errors.Join(l.disk.Write(name, 0, []byte(head+x.lines)), l.disk.Truncate(name, int64(len(head+x.lines)))); err != nil {
				t.Fatal(err)
			}
			r := checked(t, l.disk)
			if strings.Contains(worst(r), "error history-ahead "+name) != x.ahead {
				t.Errorf("%s: fsck finds %q", what, worst(r))
			}
			if !slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return f.Code == "history-damaged" && f.Path == name }) {
				t.Errorf("%s: fsck does not tell of a damaged line: %+v", what, r.Findings)
			}
			end, told, err := start(t, l.disk.Clone(), 3).vol.Preview(t.Context())
			if err != nil || (told > end) != x.ahead {
				t.Errorf("%s: a server finds LSN %d, and told of %d: %v", what, end, told, err)
			}
			plan, err := recovery.NewPlan(t.Context(), host(l.disk.Clone(), 9), recoverOptions())
			if !errors.Is(err, recovery.ErrServersRun) && (err != nil || plan.Needed != x.ahead) {
				t.Errorf("%s: a recovery says %+v, %v", what, plan, err)
			}
		}
	})
}

// A quarantined file is told as such. What it holds is nobody's promise any more.
func TestFsckSaysThatAFileIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "first\n")
		x.apply(x.table.DecideQuarantine("f", "somebody wrote to it", x.r.Epoch(), nil))
		x.kill()
		if err := d.Write("files/f", 0, []byte("whatever")); err != nil {
			t.Fatal(err)
		}
		if r := checked(t, d); r.Errors != 0 || !strings.Contains(worst(r), "warning file-quarantined files/f+0: quarantined: somebody wrote to it") {
			t.Errorf("fsck finds %q", worst(r))
		}
	})
}

// A power cut behind the log's write leaves a file without the end of it: shorter, or as long with
// zeros where data did not reach the disk. fsck tells exactly what is pending until a term has written it.
func TestFsckTellsWhatIsPending(t *testing.T) {
	const before, data = "before\n", "0123456789abcdef\n"
	end := int64(len(before + data))
	for _, c := range []struct {
		name string
		cut  func(d *volumetest.Disk) error // what the cut left of the file
		want int64
		at   int64
	}{
		{"before the write", func(*volumetest.Disk) error { return nil }, 17, 7},
		{"in the middle of it", write("files/f", 7, data[:5]), 12, 12},
		{"behind the size", truncate("files/f", end), 17, 7},
		{"with a hole", write("files/f", 7, "012\x00\x00\x00\x00\x00\x009abcdef\n"), 6, 10},
		{"with a hole, and cut", write("files/f", 7, "0\x00\x003456"), 12, 8},
		{"behind the write", write("files/f", 7, data), 0, 0},
	} {
		bubble(t, c.name, func(t *testing.T) {
			d := newDisk(t)
			x := begin(t, d, 1)
			h := holding{lock: "job", file: "f"}
			h.token = x.acquire(h.lock)
			x.append(h, before)
			x.checkpoint()
			last := x.commitAppend(h, data, 0)
			d.Crash(nil)
			if err := c.cut(d); err != nil {
				t.Fatal(err)
			}
			r := checked(t, d)
			var pending []fsck.Finding
			for _, f := range r.Findings {
				if f.Pending != 0 {
					pending = append(pending, f)
				}
			}
			switch {
			case worst(r) != "" || r.PendingBytes != c.want || (r.PendingFiles == 1) != (c.want > 0) || len(pending) != r.PendingFiles:
				t.Errorf("%d bytes of %d files are pending, want %d: %+v", r.PendingBytes, r.PendingFiles, c.want, r.Findings)
			case c.want > 0:
				f := pending[0]
				if f.Severity != fsck.SeverityInfo || f.Code != "file-behind" || f.Path != "files/f" || f.Offset != c.at || f.LSN != last.LSN || !strings.Contains(f.Problem, fmt.Sprintf("pending: %d committed bytes", c.want)) {
					t.Errorf("pending: %+v", f)
				}
			}
			y := begin(t, d, 2)
			y.redo()
			y.kill()
			if r := checked(t, d); worst(r) != "" || r.PendingBytes != 0 || r.PendingFiles != 0 {
				t.Errorf("%d bytes are pending behind a takeover: %+v", r.PendingBytes, r.Findings)
			}
			if b, err := d.ReadFile("files/f"); err != nil || string(b) != before+data {
				t.Errorf("the file has %q, %v", b, err)
			}
		})
	}
}

// Whatever a power cut leaves of what was written and not synced, fsck counts each byte that the
// files lack, and no other.
func TestFsckCountsWhatAPowerCutTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		want, seen := map[cluster.FileName]string{}, map[int64]bool{}
		for _, name := range []cluster.FileName{"f", "g"} {
			h := holding{lock: cluster.LockName("of/" + name), file: name}
			h.token = x.acquire(h.lock)
			x.append(h, "before\n")
			want[name] = "before\n"
			p, err := x.r.OpenProtected(name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				data := strings.Repeat(fmt.Sprint(i+1), 700)
				out := x.commitAppend(h, data, p.Inode())
				if err := p.WriteAt([]byte(data), out.Offset); err != nil {
					t.Fatal(err)
				}
				want[name] += data
			}
		}
		for seed := range uint64(60) {
			cut := d.DurableClone(rand.New(rand.NewPCG(seed, 1)))
			var lacks int64
			for name, all := range want {
				b, err := cut.ReadFile("files/" + string(name))
				if err != nil {
					t.Fatal(err)
				}
				for i := range all {
					if i >= len(b) || b[i] != all[i] {
						lacks++
					}
				}
			}
			if r := checked(t, cut); worst(r) != "" || r.PendingBytes != lacks {
				t.Errorf("cut %d: %d bytes are pending, want %d: %s", seed, r.PendingBytes, lacks, worst(r))
			}
			seen[lacks] = true
		}
		if len(seen) < 10 {
			t.Errorf("the cuts are all alike: %v", seen)
		}
	})
}

// Servers that wait for a majority write nothing: what is pending then is no fault of a primary.
// One that is at work, and leaves bytes out, is told of.
func TestFsckTellsAPrimaryFromServersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := begin(t, d, 1)
		h := holding{lock: "job", file: "f"}
		h.token = x.acquire(h.lock)
		x.append(h, "before\n")
		x.checkpoint()
		x.commitAppend(h, "first\n", 0)
		if err := d.Write("files/f", 7, []byte("\x00irst\n")); err != nil {
			t.Fatal(err)
		}
		if r := checked(t, d); !strings.Contains(worst(r), "warning file-lags files/f+7: 1 committed bytes") || r.PendingBytes != 1 {
			t.Errorf("beside a primary: %s, %d bytes", worst(r), r.PendingBytes)
		}
		x.kill()
		start(t, d, 2).prepare()
		if r := checked(t, d); worst(r) != "" || !r.Running || r.PendingBytes != 1 || r.PendingFiles != 1 {
			t.Errorf("beside servers that wait: running %v, %s, %d bytes", r.Running, worst(r), r.PendingBytes)
		}
	})
}
