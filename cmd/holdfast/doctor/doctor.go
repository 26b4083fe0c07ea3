// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a directory that is or shall become a volume and says
// whether its filesystem keeps the promises that Holdfast rests on.
//
// It can falsify, never prove: an asynchronous export, a lying disk or a lock
// that dies behind a partition look healthy from here. It makes a directory of
// its own under the one it is given and removes it again.
//
// One mount is probed with plain system calls (probe.go). Two mounts of one
// directory, on this host or on two, are a trial: each is a hand, and a probe asks
// one hand to do something and the other what it sees. A hand uses package volume, as
// servers do: its calls are what is on trial. In every round all caches are filled first.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
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
	// Rounds is how often it was tried, Bad how often it was wrong; 0 for what is looked at once.
	Rounds int `json:"rounds"`
	Bad    int `json:"bad"`
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
	// Rounds is how often a trial with another mount tried each thing; 0 = there was none.
	Rounds int `json:"rounds"`
	// Staleness is S, the longest time for which a trial saw something old, as a Go duration; "" = there was none.
	Staleness string `json:"staleness"`

	// MinStaleness is the S that servers assume at least on this kind of filesystem.
	MinStaleness time.Duration `json:"-"`
	// Doubts are warnings that status shows for as long as a server runs here.
	Doubts []string `json:"-"`

	mend     []string // commands that make a mount of this kind right
	coherent bool     // and after which nothing old is shown
}

func (r *Report) add(check string, v Verdict, detail string, fix ...string) {
	if fix == nil {
		fix = []string{}
	}
	r.record(Finding{Check: check, Verdict: v, Detail: detail, Fix: fix})
}

func (r *Report) record(f Finding) {
	r.Findings = append(r.Findings, f)
	if v := f.Verdict; v.rank() > r.Verdict.rank() && v != Info {
		r.Verdict = v
	}
}

// Options say what the directories are for.
type Options struct {
	// Hosts is how many hosts will run servers on the volume; 0 = what CLUSTER says, else not known.
	Hosts int
	// Mounts is where the kernel lists the mounts; "" = /proc/self/mountinfo.
	Mounts string
	// Rounds is how often a trial of two mounts tries each thing; 0 = DefaultRounds.
	Rounds int
	// Progress, if set, hears how far a trial is, often.
	Progress func(Progress)
	// Holder is the start of the command line of a process that calls Hold with
	// the two arguments that follow; nil = no process is killed.
	Holder []string
}

func (o Options) withDefaults() (Options, error) {
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
	}
	if o.Rounds < 0 || o.Rounds > MaxRounds {
		return o, fmt.Errorf("%d rounds: use 1 to %d", o.Rounds, MaxRounds)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o, nil
}

// Examine looks at each directory and, when there are several, tries what the
// first and each other one see of what the other does: they must be one directory
// seen through several mounts.
func Examine(ctx context.Context, dirs []string, opt Options) ([]*Report, error) {
	var all []*Report
	for _, dir := range dirs {
		r, filled, err := examineAlone(dir, opt)
		if err != nil {
			return nil, err
		}
		opt = filled
		all = append(all, r)
	}
	for _, r := range all[1:] {
		if err := pair(ctx, all[0], r, opt); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// examineAlone looks at one directory, and fills the options in.
func examineAlone(dir string, opt Options) (*Report, Options, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, opt, err
	}
	mounts, err := readMounts(opt.Mounts)
	if err != nil {
		return nil, opt, err
	}
	r, err := examine(dir, mounts, opt)
	return r, opt, err
}

func examine(dir string, mounts []mount, opt Options) (*Report, error) {
	r, err := look(dir, mounts, opt)
	if err != nil {
		return nil, err
	}
	r.space(r.Path)
	r.probe(r.Path, probePrefix, (*probe).latency)
	return r, nil
}

// look is what can be said without writing.
func look(dir string, mounts []mount, opt Options) (*Report, error) {
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
	return r, nil
}

// probe makes a directory of its own and tries the calls that matter, and more.
func (r *Report) probe(dir, pattern string, more ...func(*probe)) {
	tmp, err := os.MkdirTemp(dir, pattern)
	if volume.IsFull(err) {
		r.add("write", Warn, fmt.Sprintf("the disk is full, so nothing was tried: %v", err), "df -h "+dir)
		return
	}
	if err != nil {
		r.add("write", Refuse, fmt.Sprintf("cannot make a directory: %v", err),
			fmt.Sprintf("mount -o remount,rw %s", r.MountPoint), fmt.Sprintf("chown $(id -un) %s", dir))
		return
	}
	p := &probe{report: r, dir: tmp}
	if !p.full() {
		for _, try := range slices.Concat([]func(*probe){
			(*probe).exclusive, (*probe).directorySync, (*probe).link, (*probe).renameDirectory, (*probe).flock, (*probe).direct,
		}, more) {
			try(p)
		}
	}
	if err := os.RemoveAll(tmp); err != nil {
		r.add("clean up", Warn, err.Error(), "rm -r "+tmp)
	}
}

// probePrefix begins the names that doctor makes.
const probePrefix = ".holdfast-doctor-"

var errStillThere = errors.New("still there")
