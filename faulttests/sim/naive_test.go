// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// A control: what the product must not do really fails where caches lie, so
// that the simulation's filesystem has teeth. Each habit looks at something
// first, as a server that has run for a while has, then another machine changes
// it, and then it looks again. The product's way of asking the same passes.

// habit is one way to ask whether somebody else has set a flag.
type habit struct {
	name string
	// look says whether the flag is set, as this machine sees it.
	look func(h *volumetest.Host) (bool, error)
	// set is how the other machine sets it.
	set func(h *volumetest.Host) error
}

const flagged = "epochs/flag"

// setInPlace writes the flag past the writer's own cache.
func setInPlace(h *volumetest.Host) error {
	f, err := h.Open(flagged, vfs.FlagWrite|vfs.FlagDirect)
	if err != nil {
		return err
	}
	b := vfs.AlignedBuffer(vfs.BlockSize)
	b[0] = 1
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

func setNewName(h *volumetest.Host) error { return h.Mkdir("epochs/new") }

func setByRename(h *volumetest.Host) error {
	f, err := h.Open("epochs/tmp", vfs.FlagCreate|vfs.FlagDirect)
	if err != nil {
		return err
	}
	b := vfs.AlignedBuffer(vfs.BlockSize)
	b[0] = 1
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Sync(), f.Close(), h.Rename("epochs/tmp", flagged))
}

// readFlag opens the flag by name, with these flags, and reads it.
func readFlag(flag vfs.Flag) func(*volumetest.Host) (bool, error) {
	return func(h *volumetest.Host) (bool, error) {
		f, err := h.Open(flagged, flag)
		if err != nil {
			return false, err
		}
		b := vfs.AlignedBuffer(vfs.BlockSize)
		_, err = f.ReadAt(b, 0)
		return b[0] != 0, errors.Join(err, f.Close())
	}
}

func listed(h *volumetest.Host) (bool, error) {
	names, err := h.ReadDir("epochs")
	for _, x := range names {
		if x.Name == "new" {
			return true, err
		}
	}
	return false, err
}

func there(h *volumetest.Host) (bool, error) {
	_, err := h.Lstat("epochs/new")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// taken asks by trying to take the name, as a claim does.
func taken(h *volumetest.Host) (bool, error) {
	err := h.Mkdir("epochs/new")
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	if err == nil {
		err = h.Remove("epochs/new")
	}
	return false, err
}

func TestNaiveCallsFailOnStaleCaches(t *testing.T) {
	for _, x := range []struct {
		habit
		sees bool
	}{
		{habit{"buffered read of a flag", readFlag(vfs.FlagRead), setInPlace}, false},
		{habit{"listing for a higher epoch", listed, setNewName}, false},
		{habit{"a name that was missing", there, setNewName}, false},
		{habit{"direct read of a file replaced by rename", readFlag(vfs.FlagDirect), setByRename}, false},
		{habit{"direct read of a flag set in place", readFlag(vfs.FlagDirect), setInPlace}, true},
		{habit{"taking the name", taken, setNewName}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after, later, err := x.try()
				switch {
				case err != nil || before:
					t.Fatalf("before anybody set it: %v %v", before, err)
				case after != x.sees:
					t.Errorf("seen after it was set: %v, want %v", after, x.sees)
				case !later:
					t.Error("not seen when the caches had expired")
				}
			})
		})
	}
}

// try looks before, right after and long after another machine sets the flag.
func (x *habit) try() (before, after, later bool, err error) {
	disk := volumetest.New(1)
	if err := disk.Write(flagged, 0, make([]byte, vfs.BlockSize)); err != nil {
		return false, false, false, err
	}
	profile := volumetest.ProfileNetwork()
	a, b := disk.Host(1, profile), disk.Host(2, profile)
	// Held open by somebody, so that a replaced file stays readable by its old name.
	keep, err := disk.Host(3, profile).Open(flagged, vfs.FlagRead)
	if err != nil {
		return false, false, false, err
	}
	before, err1 := x.look(a)
	err2 := x.set(b)
	after, err3 := x.look(a)
	time.Sleep(2 * profile.Stale)
	later, err4 := x.look(a)
	if err := errors.Join(err1, err2, err3, err4, keep.Close()); err != nil {
		return before, after, later, fmt.Errorf("%s: %w", x.name, err)
	}
	return before, after, later, nil
}
