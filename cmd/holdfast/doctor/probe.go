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

	"github.com/holdfast-lock/holdfast/shared/volume"
)

// probe tries system calls in a directory of its own.
type probe struct {
	report *Report
	dir    string
}

func (p *probe) path(name string) string { return filepath.Join(p.dir, name) }

// file makes a file with a few bytes in it.
func (p *probe) file(name string) (string, error) {
	path := p.path(name)
	return path, os.WriteFile(path, []byte("holdfast doctor\n"), 0o600)
}

// failed refuses what could not be tried, but for want of room: a server whose
// volume is full must be able to start.
func (p *probe) failed(check string, err error) {
	v := Refuse
	if volume.IsFull(err) {
		v = Warn
	}
	p.report.add(check, v, err.Error())
}

// probeRoom is more than all probes write, in bytes.
const probeRoom = 256 << 10

// full says that there is no room to try anything in: a server whose volume is
// full must be able to start and to let locks go.
func (p *probe) full() bool {
	path := p.path("room")
	err := os.WriteFile(path, make([]byte, probeRoom), 0o600)
	if volume.IsFull(err) {
		p.report.add("write", Warn, fmt.Sprintf("the disk is full, so nothing was tried: %v", err), "df -h "+p.dir)
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
		p.report.add("directory fsync", Refuse, fmt.Sprintf("%v: a new name could be lost in a crash", err))
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

// renameDirectory tries what keeps an epoch's number from being taken twice.
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
	if err := unix.Flock(int(a.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		p.report.add("flock", Refuse, fmt.Sprintf("%v: is the lock service of the share running?", err))
		return
	}
	if err := unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		p.report.add("flock", Refuse, fmt.Sprintf("two descriptors hold one exclusive lock (%v)", err))
		return
	}
	if err := unix.Flock(int(a.Fd()), unix.LOCK_UN); err != nil {
		p.failed("flock", err)
		return
	}
	if err := unix.Flock(int(b.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		p.report.add("flock", Refuse, fmt.Sprintf("a freed lock cannot be taken: %v", err))
		return
	}
	p.report.add("flock", OK, "excludes a second descriptor (on this host; other hosts are not tried)")
}

// direct tries aligned direct I/O, on which the fence check of network
// filesystems rests.
func (p *probe) direct() {
	bad := Info // single-host filesystems do without
	if p.report.Network {
		bad = Refuse
	}
	f, err := os.OpenFile(p.path("direct"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT|unix.O_DSYNC, 0o600)
	if err != nil {
		p.report.add("direct I/O", bad, err.Error())
		return
	}
	defer f.Close() //nolint:errcheck // each write was synced
	out, in := volume.AlignedBuffer(volume.BlockSize), volume.AlignedBuffer(volume.BlockSize)
	copy(out, "holdfast doctor")
	_, err = f.WriteAt(out, 0)
	if err == nil {
		_, err = f.ReadAt(in, 0)
	}
	switch {
	case err != nil:
		p.report.add("direct I/O", bad, fmt.Sprintf("blocks of %d bytes: %v", volume.BlockSize, err))
	case !bytes.Equal(in, out):
		p.report.add("direct I/O", Refuse, "a block reads back otherwise than it was written")
	default:
		p.report.add("direct I/O", OK, fmt.Sprintf("blocks of %d bytes%s", volume.BlockSize, alignment(f)))
	}
}

// alignment is what the kernel says that direct I/O asks for, where it does.
func alignment(f *os.File) string {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return ""
	}
	return fmt.Sprintf(" (the kernel asks for %d)", st.Dio_offset_align)
}

const (
	syncRounds = 20
	// slowSync is what people notice.
	slowSync = 50 * time.Millisecond
)

// latency measures what every commit costs at least.
func (p *probe) latency() {
	f, err := os.OpenFile(p.path("latency"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		p.failed("fdatasync", err)
		return
	}
	defer f.Close() //nolint:errcheck // each write was synced
	block := make([]byte, volume.BlockSize)
	took := make([]time.Duration, 0, syncRounds)
	for i := range syncRounds {
		began := time.Now()
		_, err := f.WriteAt(block, int64(i)*volume.BlockSize)
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

// poll asks again until there is no error or the context ends.
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
