// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// CheckFsck takes over what fsck found on a volume whose servers have stopped,
// and its error. What it finds of a protected file is about I5, the rest about I3.
func CheckFsck(f volume.Report, err error, r *Report) {
	r.Checked(I3, 1)
	r.Checked(I5, f.Files)
	found := 0
	for _, x := range f.Findings {
		if x.Severity != volume.SeverityError {
			continue
		}
		found++
		number := I3
		if strings.HasPrefix(x.Path, "files/") {
			number = I5
		}
		r.Violation(number, "fsck: %s: %s", x.Path, x.Problem)
	}
	if err != nil && found == 0 {
		r.Violation(Run, "fsck: %v", err)
	}
}

// AnyonesPath says that a path on the volume may be written at any time: names of
// servers' own, history, and the views for people.
func AnyonesPath(path string) bool {
	return strings.HasPrefix(path, "servers/") || strings.HasPrefix(path, "history/") || !strings.Contains(path, "/") && path != "CLUSTER"
}

// ReignsPath says that a path on the volume belongs to the reign of an epoch, which may
// write it however late: the epoch's directory, and its own files of the index, which
// tell only what was committed and checked.
func ReignsPath(path string, epoch hf.Epoch) bool {
	return strings.HasPrefix(path, fmt.Sprintf("epochs/%010d/", uint64(epoch))) || strings.HasPrefix(path, fmt.Sprintf("index/%010d-", uint64(epoch)))
}

// CheckHarmless wants a primary that woke up to have changed nothing but what
// belongs to its own epoch between two snapshots, during which nobody asked
// for anything.
func CheckHarmless(before, after cluster.Snapshot, epoch hf.Epoch, r *Report) {
	r.Checked(I10, len(before))
	for _, change := range before.Changes(after, func(path string) bool { return AnyonesPath(path) || ReignsPath(path, epoch) }) {
		r.Violation(I10, "after the primary of epoch %d woke up: %s", epoch, change)
	}
}

// CheckLiveness wants a later reign to have answered somebody after every strike,
// within the limit. The time counts from the strike, so the limit has room for
// however long the fault itself lasts.
func CheckLiveness(strikes []Strike, l *Ledger, limit time.Duration, r *Report) {
	appends, grants, _ := l.Entries()
	for _, s := range strikes {
		r.Checked(I15, 1)
		took := Failovers([]Strike{s}, appends, grants)[s.Kind]
		switch {
		case len(took) == 0:
			r.Violation(I15, "nobody was answered by a later reign after %q ended epoch %d", s.Kind, s.Epoch)
		case took[0] > limit:
			r.Violation(I15, "after %q ended epoch %d it took %v until somebody was answered, at most %v are allowed", s.Kind, s.Epoch, took[0].Round(time.Millisecond), limit)
		}
	}
}
