// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// probe tests system calls in a directory of its own.
type probe struct {
	report *Report
	dir    string
	opt    Options
}

func (p *probe) path(name string) string { return filepath.Join(p.dir, name) }

// file makes a file with a few bytes in it.
func (p *probe) file(name string) (string, error) {
	path := p.path(name)
	return path, os.WriteFile(path, []byte("holdfast doctor\n"), 0o600)
}

// failed adds a refusal for a check that could not be made, but not if the disk is full: a server
// whose volume is full must be able to start.
func (p *probe) failed(check string, err error) {
	if vfs.IsFull(err) {
		p.report.add(check, Warn, err.Error())
		return
	}
	p.report.refuse(check, err, err.Error())
}

// probeRoom is the free space that probes require, in bytes: more than they write.
const probeRoom = 256 << 10

// full reports whether there is too little space for any probe: a server whose volume is
// full must be able to start and to release locks.
func (p *probe) full() bool {
	path := p.path("room")
	err := os.WriteFile(path, make([]byte, probeRoom), 0o600)
	if vfs.IsFull(err) {
		p.report.add("write", Warn, fmt.Sprintf("the disk is full, so nothing was tested: %v", err), "df -h "+p.dir)
		return true
	}
	if err = errors.Join(err, os.Remove(path)); err != nil {
		p.failed("write", err)
	}
	return false
}

func (p *probe) exclusive() {
	path, err := p.file("exclusive")
	if err != nil {
		p.failed("create", err)
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case err == nil:
		p.report.add("create", Refuse, "O_EXCL made a file that was there", f.Name())
		f.Close() //nolint:errcheck // nothing was written
	case errors.Is(err, os.ErrExist):
		p.report.add("create", OK, "O_EXCL refuses a name that is taken")
	default:
		p.failed("create", err)
	}
}

func (p *probe) directorySync() {
	d, err := os.Open(p.dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		p.report.refuse("directory fsync", err, fmt.Sprintf("%v: a new name could be lost in a crash", err))
		return
	}
	p.report.add("directory fsync", OK, "works")
}

func (p *probe) link() {
	path, err := p.file("linked")
	if err != nil {
		p.failed("hard links", err)
		return
	}
	if err := os.Link(path, p.path("link")); err != nil {
		p.report.add("hard links", Warn, fmt.Sprintf("%v: takeovers copy log segments instead, which takes longer", err))
		return
	}
	a, errA := inode(path)
	b, errB := inode(p.path("link"))
	again := os.Link(path, p.path("link"))
	switch {
	case errA != nil || errB != nil:
		p.failed("hard links", errors.Join(errA, errB))
	case a != b:
		p.report.add("hard links", Refuse, fmt.Sprintf("one file has the inode numbers %d and %d", a, b))
	case !errors.Is(again, os.ErrExist):
		p.report.add("hard links", Refuse, fmt.Sprintf("a link over a name that is taken: got %v, want EEXIST", again))
	default:
		p.report.add("hard links", OK, "work, and refuse a name that is taken")
	}
}

// renameDirectory tests the rename that keeps an epoch's number from being taken twice.
func (p *probe) renameDirectory() {
	err := errors.Join(os.Mkdir(p.path("from"), 0o700), os.Mkdir(p.path("onto"), 0o700))
	if err == nil {
		_, err = p.file("onto/inside")
	}
	if err != nil {
		p.failed("rename", err)
		return
	}
	switch err := unix.Rename(p.path("from"), p.path("onto")); {
	case err == nil:
		p.report.add("rename", Refuse, "a directory that is not empty was replaced: an epoch could be claimed twice")
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		p.report.add("rename", OK, "does not replace a directory that is not empty")
	default:
		p.failed("rename", err)
	}
}

// lock takes the lock of a file, or releases it. It reports when a share gives out no locks for a while.
func (p *probe) lock(f *os.File, how int) (err error) {
	flock := p.opt.flock
	if flock == nil {
		flock = unix.Flock
	}
	p.report.attend(lateLock, func() { err = flock(int(f.Fd()), how) })
	return err
}

func (p *probe) flock() {
	path, err := p.file("locked")
	if err != nil {
		p.failed("flock", err)
		return
	}
	a, errA := os.OpenFile(path, os.O_RDWR, 0)
	b, errB := os.OpenFile(path, os.O_RDWR, 0)
	if err := errors.Join(errA, errB); err != nil {
		p.failed("flock", err)
		return
	}
	defer a.Close() //nolint:errcheck // nothing was written
	defer b.Close() //nolint:errcheck // nothing was written
	if err := p.lock(a, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		p.report.refuse("flock", err, fmt.Sprintf("%v: is the lock service of the share running?", err))
		return
	}
	if err := p.lock(b, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		p.report.add("flock", Refuse, fmt.Sprintf("two descriptors hold one exclusive lock (%v)", err))
		return
	}
	if err := p.lock(a, unix.LOCK_UN); err != nil {
		p.failed("flock", err)
		return
	}
	if err := p.lock(b, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		p.report.refuse("flock", err, fmt.Sprintf("a freed lock cannot be taken: %v", err))
		return
	}
	p.report.add("flock", OK, "excludes a second descriptor (on this host; other hosts are not tested)")
}

// direct tests aligned direct I/O, which the fence check needs on network filesystems.
func (p *probe) direct() {
	// Filesystems of a single host do not need it.
	bad := func(err error, text string) { p.report.add("direct I/O", Info, text) }
	if p.report.Network {
		bad = func(err error, text string) { p.report.refuse("direct I/O", err, text) }
	}
	f, err := os.OpenFile(p.path("direct"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT|unix.O_DSYNC, 0o600)
	if err != nil {
		bad(err, err.Error())
		return
	}
	defer f.Close() //nolint:errcheck // each write was synced
	out, in := vfs.AlignedBuffer(vfs.BlockSize), vfs.AlignedBuffer(vfs.BlockSize)
	copy(out, "holdfast doctor")
	_, err = f.WriteAt(out, 0)
	if err == nil {
		_, err = f.ReadAt(in, 0)
	}
	switch {
	case err != nil:
		bad(err, fmt.Sprintf("blocks of %d bytes: %v", vfs.BlockSize, err))
	case !bytes.Equal(in, out):
		p.report.add("direct I/O", Refuse, "a block was read back with other content than was written")
	default:
		p.report.add("direct I/O", OK, fmt.Sprintf("blocks of %d bytes%s", vfs.BlockSize, alignment(f)))
	}
}

// alignment describes the alignment that direct I/O needs; "" if the kernel does not say.
func alignment(f *os.File) string {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return ""
	}
	return fmt.Sprintf(" (the kernel requires %d)", st.Dio_offset_align)
}

const (
	syncRounds = 20
	// slowSync is a duration that users notice.
	slowSync = 50 * time.Millisecond
)

// latency measures the lower bound of what a commit costs.
func (p *probe) latency() {
	f, err := os.OpenFile(p.path("latency"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		p.failed("fdatasync", err)
		return
	}
	defer f.Close() //nolint:errcheck // each write was synced
	block := make([]byte, vfs.BlockSize)
	took := make([]time.Duration, 0, syncRounds)
	for i := range syncRounds {
		began := time.Now()
		_, err := f.WriteAt(block, int64(i)*vfs.BlockSize)
		if err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil {
			p.failed("fdatasync", err)
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	median, worst := took[len(took)/2].Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond)
	v := OK
	if median > slowSync {
		v = Warn
	}
	p.report.add("fdatasync", v, fmt.Sprintf("4 KiB in %v (median), %v (worst of %d): every commit waits for one", median, worst, syncRounds))
}

// poll repeats ask until it returns no error or the context ends, and returns how long that took.
func poll(ctx context.Context, ask func() error) (time.Duration, error) {
	began := time.Now()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		err := ask()
		if err == nil {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return time.Since(began), err
		case <-t.C:
		}
	}
}
