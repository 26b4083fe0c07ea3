// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

var rounds = flag.Int("vmlab.rounds", 20, "let the doctor try each thing so often")

// diagnosis is what the doctor says of one way to mount an NFS share.
type diagnosis struct {
	options  string
	oneName  bool // both hosts have the same hostname
	one, two doctor.Verdict
	// says is in what is refused.
	says string
}

// TestDoctorOnNFS mounts a share in several ways and wants the doctor's verdicts to fit, of one
// mount and of two hosts.
func TestDoctorOnNFS(t *testing.T) {
	prepareImage(t)
	if !cluster.Inside(t, "-vmlab.image="+*made) {
		return
	}
	l := New(t, ImageIn(*made), binaryIn(*made), NFS(Asked))
	boot, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	if err := l.Boot(boot); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Hosts[0].Run(boot, "mkdir "+volume); err != nil {
		t.Fatal(err)
	}
	for _, d := range []diagnosis{
		{options: Asked, one: doctor.OK, two: doctor.OK},
		{options: "vers=4.1,hard,lookupcache=none", one: doctor.OK, two: doctor.OK},
		{options: "vers=4.0,hard,lookupcache=none", one: doctor.Warn, two: doctor.Warn},
		{options: "vers=4.2,noac", one: doctor.Warn, two: doctor.Warn, says: "lookupcache"},
		{options: "vers=4.2", one: doctor.Refuse, two: doctor.Refuse, says: "lookupcache"},
		{options: "vers=4.2,lookupcache=positive", one: doctor.Refuse, two: doctor.Refuse, says: "lookupcache"},
		{options: "vers=4.2,soft,lookupcache=none", one: doctor.Refuse, two: doctor.Refuse, says: "soft"},
		{options: "vers=3,nolock,lookupcache=none", one: doctor.Refuse, two: doctor.Refuse, says: "vers"},
		{options: "vers=3,lookupcache=none", one: doctor.Refuse, two: doctor.Refuse, says: "vers"},
		{options: Asked, oneName: true, one: doctor.OK, two: doctor.Refuse, says: "hostname"},
	} {
		if regexp.MustCompile(*which).MatchString(d.options) {
			l.share = NFS(d.options)
			l.diagnose(t, d)
		}
	}
}

// diagnose mounts the share in two hosts and asks their doctors.
func (l *Lab) diagnose(t *testing.T, d diagnosis) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*faultLimit)
	defer cancel()
	name := d.options
	for i, m := range l.Hosts[:2] {
		hostname := m.Name
		if d.oneName {
			hostname, name = "same", d.options+", both hosts with one hostname"
		}
		if _, err := m.Run(ctx, fmt.Sprintf("umount %s; hostname %s", Mounted, hostname)); err != nil {
			t.Fatalf("%s: host %d: %v", name, i, err)
		}
	}
	for _, m := range l.Hosts[:2] {
		if err := l.Mount(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	one := l.doctor(ctx, t, l.Hosts[1], "")
	listening := make(chan *doctor.Report, 1)
	go func() { listening <- l.doctor(ctx, t, l.Hosts[0], "--listen "+l.Hosts[0].IP+":7600") }()
	two := l.doctor(ctx, t, l.Hosts[1], fmt.Sprintf("--rounds %d --peer %s:7600", *rounds, l.Hosts[0].IP))
	other := <-listening
	if one == nil || two == nil || other == nil {
		return
	}
	t.Logf("| `%s` | %s | %s | %s |", name, one.Verdict, two.Verdict, concerns(two))
	if one.Verdict != d.one || two.Verdict != d.two || other.Verdict != d.two {
		t.Errorf("%s: one mount: %s, two hosts: %s and %s; want %s and %s", name, one.Verdict, two.Verdict, other.Verdict, d.one, d.two)
	}
	if !strings.Contains(concerns(two), d.says) {
		t.Errorf("%s: %q does not stand in %q", name, d.says, concerns(two))
	}
}

// doctor runs the doctor in a host; nil if it said nothing.
func (l *Lab) doctor(ctx context.Context, t *testing.T, m *Machine, args string) *doctor.Report {
	// Its exit code tells the verdict. A listener that nobody has called yet is asked again.
	out, _ := m.Run(ctx, fmt.Sprintf("holdfast doctor -o json --hosts 3 %s %s 2>> /run/doctor.log", args, volume))
	var all struct {
		Reports []*doctor.Report `json:"reports"`
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Reports) != 1 {
		t.Errorf("%s: doctor %s: %v: %q", m.Name, args, err, out)
		return nil
	}
	return all.Reports[0]
}

// concerns are the findings that are not ok, in few words.
func concerns(r *doctor.Report) string {
	var all []string
	for _, f := range r.Findings {
		if f.Verdict == doctor.OK || f.Verdict == doctor.Info {
			continue
		}
		text := fmt.Sprintf("%s %s: %s", f.Verdict, f.Check, f.Detail)
		if f.Rounds > 0 {
			text = fmt.Sprintf("%s %s: %d of %d", f.Verdict, f.Check, f.Bad, f.Rounds)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
