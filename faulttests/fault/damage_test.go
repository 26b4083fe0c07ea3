// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/traffic"
)

// TestDamagedLog damages the newest log while no server runs. Then no server may
// term: they name file and offset and change nothing. Mended, all is there.
func TestDamagedLog(t *testing.T) {
	needFaults(t)
	for name, damage := range map[string]func(content []byte, used int) []byte{
		"a flipped bit": func(b []byte, used int) []byte {
			b = slices.Clone(b)
			i := len(bytes.TrimRight(b[:used/2], "\x00")) - 1 // the padding of a frame may hold anything
			b[i] ^= 0x10
			return b
		},
		"a flipped bit in the header": func(b []byte, _ int) []byte {
			b = slices.Clone(b)
			b[20] ^= 1
			return b
		},
		"truncated": func(b []byte, used int) []byte { return b[:used/2/4096*4096] },
		"zeroed in the middle": func(b []byte, used int) []byte {
			b = slices.Clone(b)
			clear(b[used/2/4096*4096:][:8192])
			return b
		},
		"empty": func([]byte, int) []byte { return nil },
		"gone":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			damagedLog(t, damage)
		})
	}
}

// refusing is how long servers are watched while they must not be primary.
const refusing = 4 * time.Second

func damagedLog(t *testing.T, damage func([]byte, int) []byte) {
	b := newBattle(t, sourceText(t, 300<<10), 3, *faultSeed)
	through, stop := b.work(t.Context())
	cluster.Await(t, cluster.Patience, "the text to be in", func() bool { return allClosed(through) })
	stop()
	b.c.KillAll()
	segment := newestSegment(t, b.c)
	content, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(content, "\x00"))
	if damage == nil {
		err = os.Remove(segment)
	} else {
		err = overwrite(segment, damage(content, used))
	}
	if err != nil {
		t.Fatal(err)
	}
	where := regexp.QuoteMeta(filepath.Base(segment)) + ".*(offset|byte)"
	if damage == nil {
		where = "scan epoch 1: .*no segment" // there is no file to name
	}
	refuses(t, b.c, where)
	report, err := b.c.Fsck()
	if err == nil {
		t.Errorf("fsck finds nothing wrong with a damaged log: %+v", report)
	} else if !strings.Contains(err.Error(), filepath.Base(segment)) && damage != nil {
		t.Errorf("fsck does not name %s: %v", filepath.Base(segment), err)
	}
	if err := overwrite(segment, content); err != nil {
		t.Fatal(err)
	}
	b.c.StartAll()
	b.c.AwaitPrimary(cluster.Patience)
	b.end(t)
}

// newestSegment is the log that holds the newest records.
func newestSegment(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(c.Dir(), "epochs", "*", "wal-[0-9]*.log"))
	if err != nil || len(all) == 0 {
		t.Fatalf("segments: %v %v", all, err)
	}
	slices.Sort(all)
	for _, name := range slices.Backward(all) {
		if b, err := os.ReadFile(name); err == nil && len(bytes.TrimRight(b, "\x00")) > 64<<10 {
			return name
		}
	}
	t.Fatalf("no segment has much in it: %v", all)
	return ""
}

// overwrite changes a file in place, or makes it again.
func overwrite(name string, content []byte) error { return os.WriteFile(name, content, 0o644) }

// refuses starts all servers and wants none of them to be primary, a log that says
// where, and nothing changed but what a claim that fails leaves.
func refuses(t *testing.T, c *cluster.Cluster, where string) {
	t.Helper()
	before, err := c.TakeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	c.StartAll()
	ctx, cancel := context.WithTimeout(t.Context(), refusing)
	defer cancel()
	if cluster.Poll(ctx, refusing, func() bool { p, _ := c.Primary(ctx); return p != nil }) {
		t.Errorf("a server is primary on a damaged volume")
	}
	c.KillAll()
	var said strings.Builder
	for _, s := range c.Servers() {
		said.WriteString(afterLastStart(s.Log()))
	}
	if !regexp.MustCompile(where).MatchString(said.String()) {
		t.Errorf("no server says %s:\n%s", where, said.String())
	}
	after, err := c.TakeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	claimed := regexp.MustCompile(`^epochs/\d+/.*: is new$`)
	for _, change := range before.Changes(after, check.AnyonesPath) {
		if !strings.HasSuffix(change, "its flag was set") && !claimed.MatchString(change) {
			t.Errorf("refusing servers changed the volume: %s", change)
		}
	}
}

// afterLastStart is what the newest process said.
func afterLastStart(log string) string {
	i := strings.LastIndex(log, "--- test: process")
	return log[max(i, 0):]
}

// TestForeignFiles changes protected files behind the servers' back, while they
// serve and while they do not. That file is quarantined with a clear error, the
// others go on, and a rotation brings it back. One that was cut while no server
// ran is mended: bytes that are missing and stand in the log are what a crash leaves.
func TestForeignFiles(t *testing.T) {
	needFaults(t)
	cases := map[string]func(name string) error{
		"truncated": func(name string) error { return os.Truncate(name, 5) },
		"emptied":   func(name string) error { return os.Truncate(name, 0) },
		"appended": func(name string) error {
			f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("from outside\n")
			return closeAfter(f, err)
		},
		"last-line-changed": func(name string) error {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			b[len(b)-2] ^= 1
			return overwrite(name, b)
		},
		"replaced": func(name string) error {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if err := overwrite(name+".new", b); err != nil {
				return err
			}
			return os.Rename(name+".new", name)
		},
		"linked":  func(name string) error { return os.Link(name, name+".link") },
		"deleted": os.Remove,
		"symlink": func(name string) error {
			if err := os.Rename(name, name+".target"); err != nil {
				return err
			}
			return os.Symlink(filepath.Base(name)+".target", name)
		},
		"directory": func(name string) error {
			if err := os.Remove(name); err != nil {
				return err
			}
			return os.Mkdir(name, 0o755)
		},
	}
	for _, when := range []string{"serving", "down"} {
		t.Run(when, func(t *testing.T) { foreignFiles(t, when, cases) })
	}
}

func closeAfter(f *os.File, err error) error {
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// fileCase is one protected file that is tampered with.
type fileCase struct {
	name string
	h    *holding
}

func foreignFiles(t *testing.T, when string, cases map[string]func(string) error) {
	c := cluster.Start(t, options())
	client := newClient(t, c)
	var files []fileCase
	for name := range cases {
		files = append(files, fileCase{name, hold(t, client, name)})
	}
	witness := hold(t, client, "witness")
	for _, f := range files {
		f.h.mustAppend(t, "first\n")
		f.h.mustAppend(t, "second\n")
	}
	witness.mustAppend(t, "first\n")
	if when == "down" {
		c.KillAll()
	} else {
		traffic.Rest(t.Context(), 1500*time.Millisecond) // idle files are looked at again before an append
	}
	for _, f := range files {
		if err := cases[f.name](c.File(f.h.file())); err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
	}
	if when == "down" {
		c.StartAll()
		c.AwaitPrimary(cluster.Patience)
	}
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			if when == "down" && (f.name == "truncated" || f.name == "emptied") {
				mended(t, c, f.h)
			} else {
				quarantined(t, c, f.h)
			}
			witness.mustAppend(t, fmt.Sprintf("after %s\n", f.name))
		})
	}
	c.TermAll()
	if r, err := c.Fsck(); err != nil {
		t.Errorf("%v", err)
	} else {
		t.Logf("fsck: %d findings, no errors", len(r.Findings))
	}
}

// quarantined wants an append to be refused with the right word, and to go
// through when the file was moved away and rotated.
func quarantined(t *testing.T, c *cluster.Cluster, h *holding) {
	_, err := h.append(t.Context(), "never\n")
	if !isQuarantined(err) {
		t.Fatalf("append to a changed file: got %v, want FILE_QUARANTINED", err)
	}
	t.Logf("the error: %v", err)
	path := c.File(h.file())
	for try := 1; ; try++ {
		if err := os.Rename(path, fmt.Sprintf("%s.moved-%d", path, try)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		err := h.rotate(t.Context())
		if err == nil {
			break
		}
		// The new file may get the inode of one that was deleted: then it is moved away as well, as the error says.
		if try == 3 || !strings.Contains(err.Error(), "away") {
			t.Fatalf("rotate: %v", err)
		}
		t.Logf("rotate: %v", err)
	}
	h.mustAppend(t, "third\n")
	if b, err := os.ReadFile(path); err != nil || string(b) != "third\n" {
		t.Errorf("after a rotation the file holds %q (%v)", b, err)
	}
}

// mended wants the file to be whole again.
func mended(t *testing.T, c *cluster.Cluster, h *holding) {
	h.mustAppend(t, "third\n")
	if b, err := os.ReadFile(c.File(h.file())); err != nil || string(b) != "first\nsecond\nthird\n" {
		t.Errorf("after a takeover the file holds %q (%v)", b, err)
	}
}
