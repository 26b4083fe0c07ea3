// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a directory that is or shall become a volume, and judges
// whether its filesystem has the properties that Holdfast needs.
//
// It can find faults, but cannot prove that there are none: an asynchronous export, a lying
// disk or a lock that ends unnoticed in a partition look healthy from here. It makes a directory
// of its own under the examined one and removes it again.
//
// One mount is probed with plain system calls (probe.go). Two mounts of one
// directory, on this host or on two, get a trial: each has an agent, and a probe changes
// something through one agent and reads it through the other. An agent uses package volume, as
// servers do, so the servers' own calls are tested. In every round all caches are filled first.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Verdict is the result of one check, or of all of them.
type Verdict string

// The verdicts, from good to bad.
const (
	// OK means that the directory is as it should be.
	OK Verdict = "ok"
	// Info is for information: there is nothing to do.
	Info Verdict = "info"
	// Warn means that it works, with a drawback that the operator should know and accept.
	Warn Verdict = "warn"
	// Refuse means that Holdfast could not keep its guarantees here.
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
	// Fix holds commands that correct the finding, to be run as they are.
	Fix []string `json:"fix"`
	// Rounds is how often the check was repeated, Bad how often it failed; 0 for a single check.
	Rounds int `json:"rounds"`
	Bad    int `json:"bad"`
	// Denied is true if the file server refused this host or user: the finding is not about the
	// filesystem. It is not sent to the other doctor of a trial, which may be of an older version.
	Denied bool `json:"-"`
}

// Report is the result of examining one directory.
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
	// Rounds is how often a trial with another mount repeated each probe; 0 = there was no trial.
	Rounds int `json:"rounds"`
	// Staleness is S, the longest time for which a trial saw old data, as a Go duration; "" = there
	// was no trial.
	Staleness string `json:"staleness"`

	// Timing is how fast the filesystem is; nil if that was not measured.
	Timing *Timing `json:"timing"`

	// MinStaleness is the smallest S that servers assume on this kind of filesystem.
	MinStaleness time.Duration `json:"-"`
	// Doubts are warnings that status shows for as long as a server runs here.
	Doubts []string `json:"-"`

	at       mount // the mount that holds the directory
	waiting  func(why string)
	mend     []string // commands that correct the options of a mount of this kind
	coherent bool     // whether no old data is shown after these commands
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

// Options control an examination. The zero value is usable.
type Options struct {
	// Hosts is how many hosts will run servers on the volume; 0 = as many as CLUSTER names, if it is
	// there, else unknown.
	Hosts int
	// Mounts is the file in which the kernel lists the mounts; "" = /proc/self/mountinfo.
	Mounts string
	// System is the directory that holds the kernel's proc and sys; "" = /.
	System string
	// Rounds is how often a trial of two mounts repeats each probe; 0 = DefaultRounds.
	Rounds int
	// Progress, if not nil, is called often during a trial with its progress.
	Progress func(Progress)
	// Waiting, if not nil, is called with the reason when a call on a share takes long.
	Waiting func(why string)
	// Holder is the beginning of the command line of a process that calls Hold with
	// the two arguments that are appended; nil = the trial kills no process.
	Holder []string

	flock      func(fd, how int) error // nil = the system call
	mountStats func() (string, error)  // nil = reads /proc/self/mountstats
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

// Examine examines each directory and returns a report for each. If there are several, it also
// tests what the first and each other one see of the other's changes: they must be one directory
// seen through several mounts. It returns an error only if it could not examine; faults of
// the filesystem are findings.
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

// examineAlone examines one directory, and returns the options with defaults filled in.
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
	r.probe(r.Path, probePrefix, opt, (*probe).latency, (*probe).timing, (*probe).delegations)
	return r, nil
}

// look examines a directory as far as that is possible without writing.
func look(dir string, mounts []mount, opt Options) (*Report, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, abs, err := resolve(abs)
	if err != nil {
		return nil, unresolved(abs, mounts, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: give the directory of the volume", abs)
	}
	r := &Report{Path: abs, Verdict: OK, Options: []string{}, Findings: []Finding{}, waiting: opt.Waiting}
	r.locate(mounts)
	hosts := opt.Hosts
	r.attend(lateCall, func() { hosts = r.cluster(abs, opt.Hosts) })
	if r.at.point != "" {
		r.judge(r.at, hosts)
	}
	r.permissions(info)
	return r, nil
}

// resolve follows symbolic links. With an error it returns the given path.
func resolve(path string) (os.FileInfo, string, error) {
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, path, err
	}
	info, err := os.Stat(to)
	return info, to, err
}

// unresolved explains why a path cannot be followed.
func unresolved(path string, mounts []mount, err error) error {
	if m, ok := find(mounts, path, ""); ok && !m.single() && denied(err) {
		return turnedAway(m, err)
	}
	return fmt.Errorf("%w: mount the share, or make the directory first", err)
}

// attend makes a call of the filesystem. On a share it reports why, if the call takes long.
func (r *Report) attend(why string, call func()) {
	if !r.Network {
		call()
		return
	}
	attend(r.waiting, why, call)
}

// probe makes a directory of its own, tests in it the calls that Holdfast needs, and runs more.
func (r *Report) probe(dir, pattern string, opt Options, more ...func(*probe)) {
	var tmp string
	var err error
	r.attend(lateCall, func() { tmp, err = os.MkdirTemp(dir, pattern) })
	if vfs.IsFull(err) {
		r.add("write", Warn, fmt.Sprintf("the disk is full, so nothing was tested: %v", err), "df -h "+dir)
		return
	}
	if err != nil {
		r.refuse("write", err, fmt.Sprintf("cannot make a directory: %v", err),
			fmt.Sprintf("mount -o remount,rw %s", r.MountPoint), fmt.Sprintf("chown $(id -un) %s", dir))
		return
	}
	p := &probe{report: r, dir: tmp, opt: opt}
	full := false
	r.attend(lateCall, func() { full = p.full() })
	if !full {
		for _, try := range []func(*probe){(*probe).exclusive, (*probe).directorySync, (*probe).link, (*probe).renameDirectory} {
			r.attend(lateCall, func() { try(p) })
		}
		for _, try := range slices.Concat([]func(*probe){(*probe).flock, (*probe).direct}, more) {
			try(p)
		}
	}
	if err := os.RemoveAll(tmp); err != nil {
		r.add("clean up", Warn, err.Error(), "rm -r "+tmp)
	}
}

// probePrefix is the beginning of the names that doctor makes.
const probePrefix = ".holdfast-doctor-"

var errStillThere = errors.New("still there")

// unsaid is how long a call may take before Options.Waiting is called.
const unsaid = 2 * time.Second

// A restarted NFS server gives its former clients time to reclaim their locks and open files. During
// this grace period it refuses other locks and opens; the client's kernel repeats them, and the calls
// do not return.
const (
	lateLock = "the share gives out no locks yet: an NFS server that was restarted waits up to 90 s for its former clients"
	lateCall = "the share does not answer yet: its server cannot be reached, or was restarted and waits up to 90 s for its former clients"
)

// attend makes a call of the filesystem, and calls waiting once, unless it is nil, if the call takes
// long. It returns after the call.
func attend(waiting func(why string), why string, call func()) {
	if waiting == nil {
		call()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	t := time.NewTimer(unsaid)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		waiting(why)
		<-done
	}
}

// denied reports whether an error means that a file server refused this host or user. That is no
// fault of the filesystem. EPERM is not among them: filesystems without hard links return it.
func denied(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.ESTALE) }

// refuse adds a refusal because a necessary call failed: with this text, or with that of turnedAway
// if the file server refused this host or user.
func (r *Report) refuse(check string, err error, text string, fix ...string) {
	if !r.Network || !denied(err) {
		r.add(check, Refuse, text, fix...)
		return
	}
	f := Finding{Check: check, Verdict: Refuse, Detail: turnedAway(r.at, err).Error(), Fix: []string{"ls -ld " + r.Path}, Denied: true}
	if r.at.isNFS() && errors.Is(err, unix.ESTALE) { // another filesystem is exported there now
		f.Fix = append(f.Fix, r.mend...)
	}
	if r.at.isNFS() {
		f.Fix = append(f.Fix, "exportfs -v   # on the NFS server: may this host still use the export?")
	}
	r.record(f)
}

// turnedAway returns an error that explains one for which denied reports true.
func turnedAway(m mount, err error) error {
	what, how := "share", ""
	if m.isNFS() {
		what, how = "export", " (exportfs)"
	}
	return fmt.Errorf("%w: the server does not let this host use the %s any more%s, or this user may not write here", err, what, how)
}

func (m mount) isNFS() bool { return slices.Contains(nfsTypes(), m.fstype) }

// AtStart makes the checks of a server that is about to open its volume: the mount,
// the calls that a term needs, each once, and how long they take. It takes some
// milliseconds on a local disk. On a full disk it tests nothing and refuses nothing.
//
// It writes under servers/, to a name of this server that ends like those of discarded
// claims: the next process removes what a killed one leaves there.
//
// If a call on a share takes long, it calls waiting with the reason, unless that is nil. It
// returns an error only if it could not examine the directory; faults are findings.
func AtStart(dir string, id cluster.ServerID, waiting func(why string)) (*Report, error) {
	return atStart(dir, id, Options{Waiting: waiting})
}

func atStart(dir string, id cluster.ServerID, opt Options) (*Report, error) {
	mounts, err := readMounts(opt.Mounts)
	if err != nil {
		return nil, err
	}
	r, err := look(dir, mounts, opt)
	if err != nil {
		return nil, err
	}
	r.probe(filepath.Join(r.Path, "servers"), startPattern(id), opt, (*probe).timingAtStart)
	return r, nil
}

// startPattern returns the pattern of the directory that a starting server makes.
func startPattern(id cluster.ServerID) string { return fmt.Sprintf("%d.start-*.trash", id) }
