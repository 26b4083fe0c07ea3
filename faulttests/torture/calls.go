// SPDX-License-Identifier: Apache-2.0

//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// callFaults strike single system calls of the primary's process.
func callFaults() []Fault {
	call := func(name string, deposes bool, lasts time.Duration, file func(*Strike) string, inject cluster.Injection) Fault {
		return Fault{
			Name: name, Deposes: deposes, Lasts: lasts, Needs: needsTracer,
			Inject: func(ctx context.Context, s *Strike) (func() error, error) {
				inject := inject
				inject.Nth = 1 + s.Rand.IntN(4) // of one thread, of which there are many
				var x *cluster.Trace
				for began := time.Now(); ; {
					inject.Path = file(s) // by a mount whose cache may be old
					x = s.Primary.Trace(inject)
					if cluster.Poll(ctx, cluster.Patience/4, func() bool { _, _, struck := x.Struck(); return struck }) {
						break
					}
					x.Detach()
					if ctx.Err() != nil || time.Since(began) > cluster.Patience {
						return nil, fmt.Errorf("no call of %s", inject)
					}
				}
				return func() error {
					x.Detach()
					s.Primary.Cont() // SIGSTOP outlives the trace
					return restart(s.Primary)()
				}, nil
			},
		}
	}
	return []Fault{
		call("EIO once at fdatasync of the log", true, 0, newestSegment, cluster.Injection{Call: "fdatasync", Error: "EIO"}),
		call("EIO once at pwrite of the log", true, 0, newestSegment, cluster.Injection{Call: "pwrite64", Error: "EIO"}),
		call("ESTALE once at the check", true, 0, fence, cluster.Injection{Call: "pread64", Error: "ESTALE"}),
		call("fdatasync of the log hangs and is made late", true, 12*time.Second, newestSegment, cluster.Injection{Call: "fdatasync", Enter: cluster.Held}),
		call("pwrite of the log hangs and is made late", true, 12*time.Second, newestSegment, cluster.Injection{Call: "pwrite64", Enter: cluster.Held}),
		call("SIGSTOP at fdatasync of the log", true, 4*time.Second, newestSegment, cluster.Injection{Call: "fdatasync", Signal: syscall.SIGSTOP}),
		call("SIGSTOP at the check", true, 4*time.Second, fence, cluster.Injection{Call: "pread64", Signal: syscall.SIGSTOP}),
		call("SIGKILL at fdatasync of the log", true, 0, newestSegment, cluster.Injection{Call: "fdatasync", Signal: syscall.SIGKILL}),
		call("SIGKILL at pwrite of the log", true, 0, newestSegment, cluster.Injection{Call: "pwrite64", Signal: syscall.SIGKILL}),
		call("fdatasync of the log takes 150 ms longer, once", false, 0, newestSegment, cluster.Injection{Call: "fdatasync", Exit: 150 * time.Millisecond}),
	}
}

func needsTracer(*Site) error {
	if _, err := exec.LookPath("strace"); err != nil {
		return errors.New("strace is not installed")
	}
	return nil
}

// termDir is the epoch's directory of the moment, as the primary sees it.
func termDir(s *Strike) string {
	return filepath.Join(s.Site.Cluster.DirOf(s.Primary.Member.ID), "epochs", fmt.Sprintf("%010d", s.Epoch))
}

func fence(s *Strike) string { return filepath.Join(termDir(s), "fence") }

// newestSegment is the log that the primary writes to.
func newestSegment(s *Strike) string {
	found, err := filepath.Glob(filepath.Join(termDir(s), "wal-[0-9]*.log"))
	if err != nil || len(found) == 0 {
		return filepath.Join(termDir(s), "wal-none.log")
	}
	return slices.Max(found)
}
