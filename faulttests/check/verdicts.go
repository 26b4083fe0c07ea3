// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
)

// CheckFsck adds to a report what fsck found on a volume whose servers have stopped,
// and its error. Findings about protected files count for I5, the others for I3.
func CheckFsck(f fsck.Report, err error, r *Report) {
	r.Checked(I3, 1)
	r.Checked(I5, f.Files)
	found := 0
	for _, x := range f.Findings {
		if x.Severity != fsck.SeverityError {
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

// AnyonesPath reports whether any server may write a path on the volume at any time: servers'
// own names, the history, the audit, of which each process has files of its own, and the views for people.
func AnyonesPath(path string) bool {
	return strings.HasPrefix(path, "servers/") || strings.HasPrefix(path, "history/") || strings.HasPrefix(path, "audit/") || !strings.Contains(path, "/") && path != "CLUSTER"
}

// TermsPath reports whether a path on the volume belongs to the term of an epoch, which may
// write it at any later time: the epoch's directory, and its own files of the index, which
// have only what was committed and checked.
func TermsPath(path string, epoch hf.Epoch) bool {
	return strings.HasPrefix(path, fmt.Sprintf("epochs/%010d/", uint64(epoch))) || strings.HasPrefix(path, fmt.Sprintf("index/%010d-", uint64(epoch)))
}

// CheckHarmless checks that a primary which woke up between two snapshots changed nothing but
// files of its own epoch. There must be no requests in between.
func CheckHarmless(before, after cluster.Snapshot, epoch hf.Epoch, r *Report) {
	r.Checked(I10, len(before))
	for _, change := range before.Changes(after, func(path string) bool { return AnyonesPath(path) || TermsPath(path, epoch) }) {
		r.Violation(I10, "after the primary of epoch %d woke up: %s", epoch, change)
	}
}

// CheckLiveness checks that after every strike a later term answered some client
// within the limit. The time counts from the strike, so the limit must include
// the duration of the fault itself.
func CheckLiveness(strikes []Strike, l *Ledger, limit time.Duration, r *Report) {
	appends, grants, _ := l.Entries()
	for _, s := range strikes {
		r.Checked(I15, 1)
		took := Failovers([]Strike{s}, appends, grants)[s.Kind]
		switch {
		case len(took) == 0:
			r.Violation(I15, "nobody was answered by a later term after %q ended epoch %d", s.Kind, s.Epoch)
		case took[0] > limit:
			r.Violation(I15, "after %q ended epoch %d it took %v until somebody was answered, at most %v are allowed", s.Kind, s.Epoch, took[0].Round(time.Millisecond), limit)
		}
	}
}
