// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
)

// TestMinorityTakesWrites asks whether a client that reaches one brick of three writes: with
// our quorum it must not, and without one it does, and others do not see it: the doctor refuses
// that. It takes a minute.
func TestMinorityTakesWrites(t *testing.T) {
	binary := build(t)
	for quorum, want := range map[string]bool{"auto": false, "none": true} {
		t.Run(quorum, func(t *testing.T) {
			v := start(t, gluster.Options{})
			_, err := v.Shell(0, "gluster volume set "+gluster.Name+" cluster.quorum-type "+quorum)
			must(t, err, v.Remount(gluster.MountOptions()))
			verdict := map[bool]doctor.Verdict{false: doctor.OK, true: doctor.Refuse}[want]
			if f := optionsFinding(t, examineOne(t, binary, v.Mounts()[1])); f.Verdict != verdict {
				t.Errorf("doctor says %s, want %s: %s", f.Verdict, verdict, f.Detail)
			}
			f := openDirect(t, v.Mounts()[0], "written", os.O_CREATE|os.O_RDWR|unix.O_DSYNC)
			writeBlock(t, f, 1)
			must(t, v.CutBrick(0, 1), v.CutBrick(0, 2))
			_, err = f.WriteAt(block(2), 0)
			t.Logf("a write to one brick of three: %v", err)
			if done := err == nil; done != want {
				t.Errorf("a minority took the write: %v, want %v", done, want)
			}
			other := openDirect(t, v.Mounts()[1], "written", os.O_RDONLY)
			if got := readBlock(t, other); got != 1 {
				t.Errorf("another mount reads block %d, which was not written to its bricks", got)
			}
			must(t, v.JoinBrick(0, 1), v.JoinBrick(0, 2))
		})
	}
}
