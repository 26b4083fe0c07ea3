// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"crypto/rand"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// TestUnsafeFilesystem: servers on three hosts over a disk of one host are refused, unless told otherwise.
func TestUnsafeFilesystem(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	if f.Kind().Network {
		t.Skipf("%s may be shared by hosts", f.Kind().Name)
	}
	members := cluster.Members{
		{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}, {ID: 3, Client: "h3:1", Peer: "h3:3"},
	}
	if _, err := volume.Init(t.Context(), f, members, rand.Reader); err != nil {
		t.Fatal(err)
	}
	slow := cluster.Latency{Check: time.Minute, Write: time.Minute, Late: time.Minute} // this machine may be busy
	opt := Options{Server: 1, Volume: dir, Timing: cluster.DefaultTiming().Covering(slow)}
	if err := Run(t.Context(), opt); !errors.Is(err, ErrFilesystem) || !strings.Contains(err.Error(), "belongs to one host") || !strings.Contains(err.Error(), "--unsafe-filesystem") {
		t.Errorf("got %v", err)
	}
	opt.UnsafeFilesystem = true
	warnings, err := trusted(t.Context(), &opt)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "UNSAFE") {
		t.Errorf("got %q, %v", warnings, err)
	}
}

// TestDoubtsAboutTheFilesystem: what the doctor could not find out does not keep a server from
// starting, and status shows it for as long as the server runs.
func TestDoubtsAboutTheFilesystem(t *testing.T) {
	doubts := []string{"GlusterFS options: they cannot be told"}
	r := &doctor.Report{Doubts: doubts, Findings: []doctor.Finding{{Check: "GlusterFS options", Verdict: doctor.Warn, Detail: "they cannot be told"}}}
	var opt Options
	if warnings, err := opt.accept(r); err != nil || !slices.Equal(warnings, doubts) {
		t.Errorf("status is told %q, %v", warnings, err)
	}
	r.Findings = append(r.Findings, doctor.Finding{Check: "flock", Verdict: doctor.Refuse, Detail: "locks exclude nobody"})
	if _, err := opt.accept(r); !errors.Is(err, ErrFilesystem) {
		t.Errorf("refused and accepted: %v", err)
	}
	opt.UnsafeFilesystem = true
	if warnings, err := opt.accept(r); err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], "UNSAFE") || warnings[1] != doubts[0] {
		t.Errorf("status is told %q, %v", warnings, err)
	}
}

// TestAShareThatTurnsTheHostAway: where only the server of the share refused, its filesystem is not
// blamed, and the flag for filesystems is not offered.
func TestAShareThatTurnsTheHostAway(t *testing.T) {
	away := doctor.Finding{Check: "flock", Verdict: doctor.Refuse, Detail: "permission denied: the server does not let this host use the export any more", Fix: []string{"ls -ld /mnt/share", "exportfs -v"}, Denied: true}
	broken := doctor.Finding{Check: "direct I/O", Verdict: doctor.Refuse, Detail: "a block reads back otherwise"}
	for _, x := range []struct {
		findings []doctor.Finding
		want     error
	}{
		{[]doctor.Finding{away}, ErrNoAccess},
		{[]doctor.Finding{away, broken}, ErrFilesystem},
	} {
		opt := Options{Volume: "/mnt/share"}
		_, err := opt.accept(&doctor.Report{Findings: x.findings})
		if !errors.Is(err, x.want) || !strings.Contains(err.Error(), away.Detail+" (ls -ld /mnt/share; exportfs -v)") || strings.Contains(err.Error(), "unsafe") != (x.want == ErrFilesystem) {
			t.Errorf("got %v, want %v", err, x.want)
		}
		opt.UnsafeFilesystem = true
		if _, err := opt.accept(&doctor.Report{Findings: x.findings}); err != nil {
			t.Errorf("with --unsafe-filesystem: %v", err)
		}
	}
}

// TestServerSaysWhatItWaitsFor: while a share lets nobody lock, the server that starts says so.
func TestServerSaysWhatItWaitsFor(t *testing.T) {
	var log strings.Builder
	opt := Options{Volume: "/mnt/share", Log: zerolog.New(&log)}
	opt.waiting("the share lets nobody lock yet")
	if got := log.String(); !strings.Contains(got, `"level":"warn"`) || !strings.Contains(got, "the share lets nobody lock yet") || !strings.Contains(got, "/mnt/share") {
		t.Errorf("the log has %s", got)
	}
}

// TestTimingTooTightForTheVolume is told in the log and in status, with the flags that all servers
// need, and changed by nobody.
func TestTimingTooTightForTheVolume(t *testing.T) {
	slow := cluster.Latency{Check: 200 * time.Millisecond, Write: 100 * time.Millisecond}
	const flags = "--suspicion 900ms --min-ttl 1.8s"
	for _, c := range []struct {
		name   string
		timing cluster.Timing
		l      *cluster.Latency
		want   string
	}{
		{"the defaults", cluster.DefaultTiming(), &slow, "start all servers with " + flags},
		{"as was proposed", cluster.DefaultTiming().Covering(slow), &slow, ""},
		{"a fast volume", cluster.DefaultTiming(), &cluster.Latency{Check: time.Millisecond, Write: 5 * time.Millisecond}, ""},
		{"not measured", cluster.DefaultTiming(), nil, ""},
	} {
		var log bytes.Buffer
		opt := Options{Timing: c.timing, Log: zerolog.New(&log)}
		r := &doctor.Report{Doubts: []string{"a doubt"}}
		if c.l != nil {
			r.Timing = doctor.NewTiming(*c.l, 3)
		}
		warnings, err := opt.accept(r)
		if err != nil || opt.Timing != c.timing || len(warnings) == 0 || warnings[0] != "a doubt" {
			t.Errorf("%s: %q, %v, %+v", c.name, warnings, err, opt.Timing)
		}
		said := strings.Join(warnings[1:], "")
		if (said == "") != (c.want == "") || !strings.Contains(said, c.want) || strings.Contains(log.String(), "too tight") != (c.want != "") {
			t.Errorf("%s: status says %q, the log %s", c.name, said, &log)
		}
		if c.want != "" && (!strings.Contains(said, "a check takes up to 200ms, a synced write up to 100ms") || !strings.Contains(log.String(), `"--suspicion 900ms"`)) {
			t.Errorf("%s: status says %q, the log %s", c.name, said, &log)
		}
	}
}

// TestStartMeasuresTheVolume: with a timing that no volume keeps, a start warns of what it measured.
func TestStartMeasuresTheVolume(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	if _, err := volume.Init(t.Context(), f, cluster.Members{{ID: 1, Client: "h:1", Peer: "h:3"}}, rand.Reader); err != nil {
		t.Fatal(err)
	}
	opt := Options{Server: 1, Volume: dir, UnsafeFilesystem: true, Timing: cluster.DefaultTiming()}
	opt.Timing.Suspicion = 1
	warnings, err := trusted(t.Context(), &opt)
	if err != nil || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "start all servers with --suspicion ") }) {
		t.Errorf("got %q, %v", warnings, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "servers", "*.trash")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
