// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// deed is what a machine does with the file f.
type deed func(*volumetest.Host) error

func reads(h *volumetest.Host) error  { return h.Browse(vfs.FlagRead, "f") }
func writes(h *volumetest.Host) error { return h.Browse(vfs.FlagWrite, "f") }

func opens(flag vfs.Flag) deed {
	return func(h *volumetest.Host) error { return openAndClose(h, "f", flag) }
}

func locks(h *volumetest.Host) error {
	l, err := h.TryLock("f")
	if err != nil {
		return err
	}
	return l.Unlock()
}

func TestDelegations(t *testing.T) {
	const lease = 90 * time.Second
	const none = vfs.Flag(1 << 7)
	for _, test := range []struct {
		name        string
		write       bool     // those for writing are given, too
		open        vfs.Flag // how a third machine has the file open meanwhile
		first, then deed
		runs        bool // the first machine goes on
		waits       time.Duration
	}{
		{"read, then written", false, none, reads, writes, false, lease},
		{"read, then written while the reader runs", false, none, reads, writes, true, 0},
		{"read, then read", false, none, reads, reads, false, 0},
		{"read, then locked", false, none, reads, locks, false, lease},
		{"read, then removed", false, none, reads, func(h *volumetest.Host) error { return h.Remove("f") }, false, lease},
		{"read, then renamed", false, none, reads, func(h *volumetest.Host) error { return h.Rename("f", "g") }, false, lease},
		{"read, then linked", false, none, reads, func(h *volumetest.Host) error { return h.Link("f", "g") }, false, lease},
		{"opened by Holdfast to read, then written", false, none, opens(vfs.FlagRead), writes, false, 0},
		{"opened by Holdfast to write, then written", true, none, opens(vfs.FlagWrite), writes, false, 0},
		{"read, then opened by Holdfast to write", false, none, reads, opens(vfs.FlagWrite), false, lease},
		{"written, then read", false, none, writes, reads, false, 0},
		{"written, then written", false, none, writes, writes, false, 0},
		{"written, then read, with those for writing", true, none, writes, reads, false, lease},
		{"written, then looked at, with those for writing", true, none, writes, func(h *volumetest.Host) error {
			_, err := h.Lstat("f")
			return err
		}, false, lease},
		{"read while somebody writes, then written", false, vfs.FlagWrite, reads, writes, false, 0},
		{"written while somebody reads, then read, with those for writing", true, vfs.FlagRead, writes, reads, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := volumetest.New(1)
				a, b, c := d.Host(1, volumetest.ProfileNetwork()), d.Host(2, volumetest.ProfileNetwork()), d.Host(3, volumetest.ProfileNetwork())
				must(t, openAndClose(a, "f", vfs.FlagCreate))
				d.Delegate(volumetest.Delegations{Lease: lease, Write: test.write})
				if test.open != none {
					_, err := c.Open("f", test.open)
					must(t, err)
				}
				must(t, test.first(a))
				if !test.runs {
					a.PowerOff()
				}
				began := time.Now()
				must(t, test.then(b))
				if took := time.Since(began); took != test.waits {
					t.Errorf("it waited %v, want %v", took, test.waits)
				}
			})
		})
	}
}

// A machine that was started anew holds nobody up any more.
func TestDelegationsEndWithAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		d.Delegate(volumetest.Delegations{Lease: 90 * time.Second})
		a, b := d.Host(1, volumetest.ProfileNetwork()), d.Host(2, volumetest.ProfileNetwork())
		must(t, openAndClose(b, "f", vfs.FlagCreate))
		must(t, a.Browse(vfs.FlagRead, "f"))
		a.PowerOff()
		began := time.Now()
		d.Host(1, volumetest.ProfileNetwork())
		must(t, openAndClose(b, "f", vfs.FlagWrite))
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited %v", took)
		}
	})
}

func openAndClose(h *volumetest.Host, name string, flag vfs.Flag) error {
	f, err := h.Open(name, flag)
	if err != nil {
		return err
	}
	return f.Close()
}
