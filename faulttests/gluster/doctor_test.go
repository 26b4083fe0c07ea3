// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// exitFindings is how doctor ends when a volume must not be there.
const exitFindings = 1

// doctorRounds are enough to see caches that are right one time in two.
const doctorRounds = 20

// TestDoctor wants holdfast doctor to refuse a volume with default options, on each mount; to
// name the commands that mend it; and to accept the volume, without a warning, once these very
// commands have run. It takes some minutes.
func TestDoctor(t *testing.T) {
	v := start(t, gluster.Options{Tuning: gluster.Defaults})
	binary := build(t)

	reports, code := examine(t, binary, v)
	if code != exitFindings {
		t.Errorf("with default options doctor ends with %d, want %d", code, exitFindings)
	}
	for i, r := range reports {
		if r.Verdict != doctor.Refuse {
			t.Errorf("mount %d with default options: %s, want %s", i, r.Verdict, doctor.Refuse)
		}
		wantCommands(t, v, i, refusal(r))
	}
	if t.Failed() {
		return
	}
	for client, r := range reports {
		for _, line := range commands(r) {
			out, err := v.Shell(client, line)
			t.Logf("client %d $ %s\n%s", client, line, out)
			must(t, err)
		}
	}

	reports, code = examine(t, binary, v)
	if code != 0 {
		t.Errorf("after the commands doctor ends with %d, want 0", code)
	}
	for i, r := range reports {
		if r.Verdict != doctor.OK || r.Staleness != "" && r.Staleness != "0s" {
			t.Errorf("mount %d after the commands: %s, staleness %s", i, r.Verdict, r.Staleness)
		}
		t.Logf("mount %d after the commands: %s, staleness %s", i, r.Verdict, r.Staleness)
	}
}

// examine runs the doctor over all mounts.
func examine(t *testing.T, binary string, v *gluster.Volume) (reports []doctor.Report, code int) {
	t.Helper()
	m := v.Mounts()
	cmd := exec.Command(binary, append([]string{"doctor", "-o", "json", "--hosts", "3", "--rounds", fmt.Sprint(doctorRounds)}, m[:]...)...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
		t.Logf("doctor: %s", exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Reports []doctor.Report }
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Reports) != gluster.Replicas {
		t.Fatalf("doctor printed %d reports (%v): %s", len(answer.Reports), err, out)
	}
	for i, r := range answer.Reports {
		for _, f := range r.Findings {
			t.Logf("mount %d: %-6s %s: %s", i, f.Verdict, f.Check, f.Detail)
		}
	}
	return answer.Reports, code
}

// refusal is the commands of the first finding that refuses the volume.
func refusal(r doctor.Report) []string {
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Verdict == doctor.Refuse })
	if i < 0 {
		return nil
	}
	return r.Findings[i].Fix
}

// commands are those of a report's findings that refuse the filesystem, each once.
func commands(r doctor.Report) (lines []string) {
	for _, f := range r.Findings {
		if f.Verdict != doctor.Refuse {
			continue
		}
		for _, line := range f.Fix {
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// wantCommands wants the commands to be complete: they set all that this package
// sets, and nothing else, and mount what is mounted there.
func wantCommands(t *testing.T, v *gluster.Volume, client int, lines []string) {
	t.Helper()
	var want []string
	for _, s := range gluster.Settings() {
		want = append(want, s.Name+" "+s.Value)
	}
	got := settings(lines)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("mount %d: doctor's commands set\n%v, want\n%v", client, got, want)
	}
	mount := fmt.Sprintf("mount -t glusterfs -o %s %s %s", strings.Join(gluster.MountOptions(), ","), v.Source(), v.Mounts()[client])
	if !strings.HasSuffix(slices.Concat([]string{""}, lines)[len(lines)], mount) {
		t.Errorf("mount %d: doctor's last command is not %q: %q", client, mount, lines)
	}
}

// settings are what command lines set, found out by the shell itself.
func settings(lines []string) (all []string) {
	const spy = `gluster() { shift 3; echo "$@"; }; `
	for _, line := range lines {
		if !strings.Contains(line, "gluster volume set "+gluster.Name+" ") {
			continue
		}
		out, err := exec.Command("sh", "-c", spy+line).Output()
		if err != nil {
			all = append(all, err.Error())
		}
		for setting := range strings.Lines(string(out)) {
			all = append(all, strings.TrimSpace(setting))
		}
	}
	return all
}

// TestServersJudgeTheOptions wants servers not to start on a volume with default options, to say
// which and what mends them; and to start, without a warning in status, once that was done.
func TestServersJudgeTheOptions(t *testing.T) {
	v := start(t, gluster.Options{Tuning: gluster.Defaults})
	dirs := map[hf.ServerID]string{}
	for i, m := range v.Mounts() {
		dirs[hf.ServerID(i+1)] = filepath.Join(m, "volume")
	}
	c := cluster.New(t, cluster.Options{Binary: build(t), Dir: dirs[1], Dirs: dirs})
	x := c.Server(2)
	x.Start()
	if err, ended := x.Ended(cluster.Patience); err == nil || !ended {
		t.Fatalf("a server on default options: ended %v, %v: %s", ended, err, x.Tail(5))
	}
	for _, want := range []string{"performance.quick-read is on", "entry-timeout is 1 s", "gluster volume set holdfast cluster.choose-local off", "--unsafe-filesystem"} {
		if !strings.Contains(x.Log(), want) {
			t.Errorf("the server that ended does not say %q: %s", want, x.Tail(5))
		}
	}
	must(t, v.Tune())
	c.StartAll()
	c.AwaitReplicas(cluster.Patience)
	for _, x := range c.Servers() {
		s, err := x.Status(t.Context())
		must(t, err)
		for i := range s.Servers {
			if w := s.Servers[i].Volume.Warnings; len(w) > 0 {
				t.Errorf("server %d tells of server %d: %q", x.Member.ID, s.Servers[i].ID, w)
			}
		}
	}
	c.TermAll()
	below := t.TempDir() // a mount of a directory of the volume shows its client, too
	out, err := v.Shell(0, fmt.Sprintf("mount -t glusterfs -o %s %s/volume %s", strings.Join(gluster.MountOptions(), ","), v.Source(), below))
	if err != nil {
		t.Fatal(err, out)
	}
	defer v.Shell(0, "umount "+below) //nolint:errcheck // the volume ends next
	if f := optionsFinding(t, examineOne(t, c.Command().Path, below)); f.Verdict != doctor.OK {
		t.Errorf("a mount of a directory: %+v", f)
	}
}
