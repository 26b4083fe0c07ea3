// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a directory that is or shall become a volume and says
// whether its filesystem keeps the promises that Holdfast rests on.
//
// It can falsify, never prove: an asynchronous export, a lying disk or a lock
// that dies behind a partition look healthy from here. It makes a directory of
// its own under the one it is given, probes with plain system calls (they are
// what is on trial), and removes it again.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Verdict is what one check, or all of them, came to.
type Verdict string

// The verdicts, from good to bad.
const (
	// OK: as it should be.
	OK Verdict = "ok"
	// Info: good to know, nothing to do.
	Info Verdict = "info"
	// Warn: it works, with a drawback that somebody should know and accept.
	Warn Verdict = "warn"
	// Refuse: Holdfast would lose what it promised here.
	Refuse Verdict = "refuse"
)

func (v Verdict) rank() int {
	switch v {
	case Refuse:
		return 3
	case Warn:
		return 2
	case Info:
		return 1
	default:
		return 0
	}
}

// Finding is the result of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	// Fix holds commands that mend it, to be run as they stand.
	Fix []string `json:"fix"`
}

// Report is what is known of one directory.
type Report struct {
	Path       string    `json:"path"`
	Verdict    Verdict   `json:"verdict"` // the worst of its findings; info counts as ok
	Filesystem string    `json:"filesystem"`
	Network    bool      `json:"network"`
	MountPoint string    `json:"mount_point"`
	Source     string    `json:"source"`
	Options    []string  `json:"options"`
	ClusterID  string    `json:"cluster_id"` // "" where there is no CLUSTER
	Findings   []Finding `json:"findings"`
}

func (r *Report) add(check string, v Verdict, detail string, fix ...string) {
	if fix == nil {
		fix = []string{}
	}
	r.Findings = append(r.Findings, Finding{Check: check, Verdict: v, Detail: detail, Fix: fix})
	if v.rank() > r.Verdict.rank() && v != Info {
		r.Verdict = v
	}
}

// Options say what the directories are for.
type Options struct {
	// Hosts is how many hosts will run servers on the volume; 0 = what CLUSTER says, else not known.
	Hosts int
	// Mounts is where the kernel lists the mounts; "" = /proc/self/mountinfo.
	Mounts string
}

// Examine looks at each directory and, when there are several, at whether they
// are the same directory seen through several mounts.
func Examine(ctx context.Context, dirs []string, opt Options) ([]*Report, error) {
	mounts, err := readMounts(opt.Mounts)
	if err != nil {
		return nil, err
	}
	var all []*Report
	for _, dir := range dirs {
		r, err := examine(dir, mounts, opt)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(dirs) > 1 {
		for i, r := range all[1:] {
			r.sameDirectory(ctx, all[0].Path, dirs[i+1])
		}
	}
	return all, nil
}

func examine(dir string, mounts []mount, opt Options) (*Report, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("%w: mount the share, or make the directory first", err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: give the directory of the volume", abs)
	}
	r := &Report{Path: abs, Verdict: OK, Options: []string{}, Findings: []Finding{}}
	hosts := r.cluster(abs, opt.Hosts)
	r.mount(abs, mounts, hosts)
	r.permissions(info)
	r.space(abs)
	r.probe(abs)
	return r, nil
}

// probe makes a directory of its own and tries the calls that matter.
func (r *Report) probe(dir string) {
	tmp, err := os.MkdirTemp(dir, probePrefix)
	if err != nil {
		r.add("write", Refuse, fmt.Sprintf("cannot make a directory: %v", err),
			fmt.Sprintf("mount -o remount,rw %s", r.MountPoint), fmt.Sprintf("chown $(id -un) %s", dir))
		return
	}
	p := &probe{report: r, dir: tmp}
	for _, check := range []func(){p.exclusive, p.directorySync, p.link, p.renameDirectory, p.flock, p.direct, p.latency} {
		check()
	}
	if err := os.RemoveAll(tmp); err != nil {
		r.add("clean up", Warn, err.Error(), "rm -r "+tmp)
	}
}

// probePrefix begins the names that doctor makes.
const probePrefix = ".holdfast-doctor-"

var errStillThere = errors.New("still there")
