// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// difference is a volume and its mounts with one option that is not ours.
type difference struct {
	name    string
	setting string // of the volume, as in gluster volume set
	mount   string // the mounts' option, in place of ours
	verdict doctor.Verdict
}

func differences() []difference {
	return []difference{
		{"ours", "", "", doctor.OK},
		{"client-io-threads", "performance.client-io-threads on", "", doctor.OK},
		{"quick-read", "performance.quick-read on", "", doctor.Refuse},
		{"io-cache", "performance.io-cache on", "", doctor.Refuse},
		{"read-ahead", "performance.read-ahead on", "", doctor.Refuse},
		{"stat-prefetch", "performance.stat-prefetch on", "", doctor.Refuse},
		{"nl-cache", "performance.nl-cache on", "", doctor.Refuse},
		{"open-behind", "performance.open-behind on", "", doctor.Warn},
		{"write-behind", "performance.write-behind on", "", doctor.Warn},
		{"readdir-ahead", "performance.readdir-ahead on", "", doctor.OK},
		{"choose-local", "cluster.choose-local on", "", doctor.Warn},
		{"strict-locks", "client.strict-locks off", "", doctor.Warn},
		{"ping-timeout", "network.ping-timeout 42", "", doctor.Warn},
		{"entry-timeout", "", "entry-timeout=1", doctor.Refuse},
		{"attribute-timeout", "", "attribute-timeout=1", doctor.Refuse},
		{"negative-timeout", "", "negative-timeout=1", doctor.Refuse},
		{"direct-io-mode", "", "direct-io-mode=auto", doctor.Refuse},
	}
}

// differenceRounds are few: what a cache shows old, it shows old in most rounds.
const differenceRounds = 30

// TestOptionsOneByOne makes one option differ from ours at a time, measures what a mount sees
// of what another one does, and asks the doctor about one mount, as each server does when it
// starts: what shows old data is refused, the rest is a warning. It takes some minutes.
func TestOptionsOneByOne(t *testing.T) {
	v := start(t, gluster.Options{})
	binary := build(t)
	for _, d := range differences() {
		t.Run(d.name, func(t *testing.T) {
			d.apply(t, v)
			var stale map[string]int
			t.Run("measure", func(t *testing.T) { stale = measure(t, v.Mounts()) })
			t.Logf("stale of %d: %v", differenceRounds, stale)
			if d.verdict != doctor.Refuse && len(stale) > 0 || d.verdict == doctor.Refuse && len(stale) == 0 {
				t.Errorf("stale of %d: %v, and the verdict should be %s", differenceRounds, stale, d.verdict)
			}
			m := v.Mounts()[1]
			f := optionsFinding(t, examineOne(t, binary, m))
			t.Logf("doctor: %s: %s", f.Verdict, f.Detail)
			if f.Verdict != d.verdict {
				t.Errorf("doctor says %s, want %s: %s", f.Verdict, d.verdict, f.Detail)
			}
			for _, line := range f.Fix {
				out, err := v.Shell(1, line)
				if err != nil {
					t.Fatalf("%s: %v: %s", line, err, out)
				}
			}
			if f := optionsFinding(t, examineOne(t, binary, m)); f.Verdict != doctor.OK {
				t.Errorf("after the commands %q: %s: %s", f.Fix, f.Verdict, f.Detail)
			}
		})
	}
}

// apply makes the difference, and mounts anew.
func (d difference) apply(t *testing.T, v *gluster.Volume) {
	t.Helper()
	if name, _, ok := strings.Cut(d.setting, " "); ok {
		_, err := v.Shell(0, "gluster volume set "+gluster.Name+" "+d.setting)
		must(t, err)
		t.Cleanup(func() {
			_, err := v.Shell(0, "gluster volume reset "+gluster.Name+" "+name)
			must(t, err, v.Tune())
		})
	}
	options := gluster.MountOptions()
	if name, _, ok := strings.Cut(d.mount, "="); ok {
		i := slices.IndexFunc(options, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		options[i] = d.mount
	}
	must(t, v.Remount(options))
}

// examineOne runs the doctor over one mount.
func examineOne(t *testing.T, binary, dir string) doctor.Report {
	t.Helper()
	out, err := exec.Command(binary, "doctor", "-o", "json", "--hosts", "3", dir).Output()
	var answer struct{ Reports []doctor.Report }
	if e := json.Unmarshal(out, &answer); e != nil || len(answer.Reports) != 1 {
		t.Fatalf("doctor printed %q (%v, %v)", out, e, err)
	}
	r := answer.Reports[0]
	if refused := r.Verdict == doctor.Refuse; (err != nil) != refused {
		t.Errorf("doctor says %s and ends with %v", r.Verdict, err)
	}
	return r
}

func optionsFinding(t *testing.T, r doctor.Report) doctor.Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == "GlusterFS options" })
	if i < 0 {
		t.Fatalf("doctor says nothing of the options: %+v", r.Findings)
	}
	return r.Findings[i]
}

// measure counts what one mount shows old of what another one has just done, by what that is.
func measure(t *testing.T, mounts [gluster.Replicas]string) map[string]int {
	t.Helper()
	stale := map[string]int{}
	dir := strings.ReplaceAll(t.Name(), "/", "-")
	must(t, os.Mkdir(filepath.Join(mounts[0], dir), 0o755))
	for i := range differenceRounds {
		name := filepath.Join(dir, fmt.Sprint(i))
		w := &watcher{t: t, from: filepath.Join(mounts[0], name), at: filepath.Join(mounts[1], name), stale: stale}
		w.names()
		w.content("buffered", 0)
		w.content("direct", unix.O_DIRECT)
		w.size()
		w.old("appended, bit by bit", staleAppends(t, mounts, 3) > 0)
	}
	return stale
}

// watcher changes a file on one mount and looks at it on another.
type watcher struct {
	t        *testing.T
	from, at string
	stale    map[string]int
}

// old counts what is old.
func (w *watcher) old(what string, is bool) {
	if is {
		w.stale[what]++
	}
}

// names makes a name that was missing, replaces what has it, and takes it away.
func (w *watcher) names() {
	w.t.Helper()
	exists := func() bool { _, err := os.Lstat(w.at); return err == nil }
	read := func() string { b, _ := os.ReadFile(w.at); return string(b) } // "" where it is missing
	listed := func() bool {
		all, err := os.ReadDir(filepath.Dir(w.at))
		must(w.t, err)
		return slices.ContainsFunc(all, func(e os.DirEntry) bool { return e.Name() == filepath.Base(w.at) })
	}
	if listed() || exists() { // in this order: a listing may bring names along
		w.t.Errorf("%s is there already", w.at)
	}
	must(w.t, os.WriteFile(w.from, []byte("one"), 0o600))
	w.old("new name", !exists())
	w.old("list with a new name", !listed())
	w.old("new file", read() != "one")
	must(w.t, os.WriteFile(w.from+"-next", []byte("two"), 0o600), os.Rename(w.from+"-next", w.from))
	w.old("replaced file", read() != "two")
	must(w.t, os.Rename(w.from, w.from+"-gone"))
	w.old("renamed name", exists())
	must(w.t, os.Rename(w.from+"-gone", w.from))
	exists()
	must(w.t, os.Remove(w.from))
	w.old("removed name", exists())
	w.old("list with a removed name", listed())
}

// content overwrites what a descriptor of the other mount has read, and appends to it.
func (w *watcher) content(how string, flags int) {
	w.t.Helper()
	from := openFile(w.t, w.from+"-content-"+how, os.O_CREATE|os.O_RDWR|unix.O_DIRECT|unix.O_DSYNC)
	writeBlock(w.t, from, 1)
	at := openFile(w.t, w.at+"-content-"+how, os.O_RDONLY|flags)
	readBlock(w.t, at)
	writeBlock(w.t, from, 2)
	w.old("overwritten, "+how, readBlock(w.t, at) != 2)
	got := vfs.AlignedBuffer(vfs.BlockSize)
	for i := range int64(3) {
		_, err := at.ReadAt(got, (i+1)*vfs.BlockSize)
		w.old("nothing there yet, "+how, !errors.Is(err, io.EOF))
		_, err = from.WriteAt(block(3), (i+1)*vfs.BlockSize)
		must(w.t, err)
		_, err = at.ReadAt(got, (i+1)*vfs.BlockSize)
		w.old("appended, "+how, err != nil || !bytes.Equal(got, block(3)))
	}
}

// size appends to a file of which the other mount has asked for nothing but its size.
func (w *watcher) size() {
	w.t.Helper()
	from := openFile(w.t, w.from+"-size", os.O_CREATE|os.O_RDWR|unix.O_DSYNC)
	at := openFile(w.t, w.at+"-size", os.O_RDONLY)
	size := func(info os.FileInfo, err error) int64 { must(w.t, err); return info.Size() }
	for i := range int64(3) {
		w.old("size of a descriptor", size(at.Stat()) != i)
		_, err := from.WriteAt([]byte("x"), i)
		must(w.t, err)
		w.old("size of a descriptor", size(at.Stat()) != i+1)
		w.old("size by name", size(os.Lstat(at.Name())) != i+1)
	}
}
