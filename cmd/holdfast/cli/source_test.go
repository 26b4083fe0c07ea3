// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// What is to be known of a volume's answers is told once: people on the standard error,
// programs in the message.
func TestTheNoteOfAVolumeIsToldOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	if r := run("", "", "init", "--volume", dir, "--server", "1=h1", "--server", "2=h2", "--server", "3=h3"); r.code != 0 {
		t.Fatalf("init: %+v", r)
	}
	// It has no appends either: that is no empty table.
	if r := run("", "", "blame", "nosuch", "--volume", dir); r.code != 2 || r.out != "" || !strings.Contains(r.errs, "nosuch") {
		t.Errorf("blame of a file that is not there: %+v", r)
	}
	const note = "without a server"
	for _, command := range []string{"history a", "why a", "show a", "ls"} {
		r := run("", "", append(words(command), "--volume", dir)...)
		if r.code != 0 || strings.Contains(r.out, note) || strings.Count(r.errs, note) != 1 {
			t.Errorf("%s: %+v", command, r)
		}
		r = run("", "", append(words(command), "--volume", dir, "-o", "json")...)
		if r.code != 0 || !strings.Contains(r.out, note) || r.errs != "" {
			t.Errorf("%s in JSON: %+v", command, r)
		}
	}
}

// TestBlameOfAVolumeIsOfTheGenerationThatIsThere, also before the index has any of it.
func TestBlameOfAVolumeIsOfTheGenerationThatIsThere(t *testing.T) {
	dir := t.TempDir()
	fsys, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	primarytest.Init(t, fsys, primarytest.Members())
	x := primarytest.Serve(t, fsys, volume.Options{})
	do := func(q locktable.Request) locktable.Outcome {
		t.Helper()
		q.Client, q.Lock, q.CRC = "c", "l", crc32.Checksum(q.Data, crc32.MakeTable(crc32.Castagnoli))
		out, err := x.Primary.Do(t.Context(), &q)
		if err != nil || out.Status != cluster.StatusOK {
			t.Fatalf("%v: %+v, %v", q.Op, out, err)
		}
		return out
	}
	blamed := func(more ...string) (b wire.BlameBody) {
		t.Helper()
		r := run("", "", append([]string{"blame", "f", "--volume", dir, "-o", "json"}, more...)...)
		if err := json.Unmarshal([]byte(r.out), &b); err != nil || r.code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		return b
	}
	token := do(locktable.Request{Op: locktable.OpAcquire, ID: 1, TTL: time.Minute}).Token
	do(locktable.Request{Op: locktable.OpAppend, ID: 2, Token: token, File: "f", Data: []byte("first\n")})
	if err := os.Rename(filepath.Join(dir, "files", "f"), filepath.Join(dir, "files", "old")); err != nil {
		t.Fatal(err)
	}
	do(locktable.Request{Op: locktable.OpRotate, ID: 3, Token: token, File: "f"})
	do(locktable.Request{Op: locktable.OpAppend, ID: 4, Token: token, File: "f", Data: []byte("second\n")})
	for _, line := range []string{"--line=1", "--offset=0"} {
		b := blamed(line)
		if b.Generation != 2 || len(b.Pieces) != 1 || b.Pieces[0].Length < 1 || b.Pieces[0].Indexed && b.Pieces[0].RequestID != 4 {
			t.Errorf("%s: %+v", line, b)
		}
	}
	if b := blamed(); b.Generation != 2 || len(b.Pieces) != 1 || b.Pieces[0].Length != 7 {
		t.Errorf("all of it: %+v", b)
	}
	if b := blamed("--offset=7"); len(b.Pieces) != 0 {
		t.Errorf("behind the end: %+v", b)
	}
	for more, want := range map[string]string{"--generation=1 --line=1": "there is no files/f.g1", "--generation=3": "is at generation 2"} {
		if r := run("", "", append([]string{"blame", "f", "--volume", dir}, words(more)...)...); r.code != 2 || !strings.Contains(r.errs, want) {
			t.Errorf("%s: %+v", more, r)
		}
	}
}

// TestFsckOfAVolumeWithAPendingAppend ends as that of a whole volume, and says at its end what is missing.
func TestFsckOfAVolumeWithAPendingAppend(t *testing.T) {
	dir := t.TempDir()
	t.Run("a term", func(t *testing.T) {
		fsys, err := osfs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		primarytest.Init(t, fsys, primarytest.Members())
		x := primarytest.Serve(t, fsys, volume.Options{})
		token := cluster.Token(0)
		for _, q := range []locktable.Request{
			{Op: locktable.OpAcquire, ID: 1, TTL: time.Minute},
			{Op: locktable.OpAppend, ID: 2, File: "f", Data: []byte("first\n")},
			{Op: locktable.OpAppend, ID: 3, File: "f", Data: []byte("second\n")},
		} {
			q.Client, q.Lock, q.Token, q.CRC = "c", "l", token, crc32.Checksum(q.Data, crc32.MakeTable(crc32.Castagnoli))
			out, err := x.Primary.Do(t.Context(), &q)
			if err != nil || out.Status != cluster.StatusOK {
				t.Fatalf("%v: %+v, %v", q.Op, out, err)
			}
			token = out.Token
		}
	})
	if r := run("", "", "fsck", "--volume", dir); r.code != 0 || strings.Contains(r.out, "pending") {
		t.Errorf("of a whole volume: fsck: got %+v", r)
	}
	if err := os.Truncate(filepath.Join(dir, "files", "f"), 8); err != nil { // as a power cut leaves it
		t.Fatal(err)
	}
	r := run("", "", "fsck", "--volume", dir)
	for _, want := range []string{
		"info     files/f at 8 (LSN ",
		"): pending: 5 committed bytes are in the log and not in the file yet\n         nothing is lost: the next primary writes them; start the servers if none run\n",
		"\npending: 5 bytes of 1 file, in the log and not in the files: the next primary writes them; start the servers if none run\n0 errors\n",
	} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("fsck: got %+v, want %q", r, want)
		}
	}
	var report fsck.Report
	r = run("", "", "fsck", "--volume", dir, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 0 || report.PendingFiles != 1 || report.PendingBytes != 5 || !strings.Contains(r.out, `"pending_bytes":5`) {
		t.Errorf("fsck: got %+v, %v", r, err)
	}
}
