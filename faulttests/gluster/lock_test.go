// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/gluster"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// flockAcross wants a lock on one mount to exclude the others, and to be free
// soon after its holder was killed.
func flockAcross(t *testing.T, mounts [gluster.Replicas]string) {
	name := filepath.Join(mounts[0], "locked")
	must(t, os.WriteFile(name, nil, 0o644))
	holder := exec.Command("flock", "--exclusive", name, "cat")
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	alive, err := holder.StdinPipe()
	must(t, err)
	defer alive.Close() //nolint:errcheck // the process is killed
	must(t, holder.Start())
	other, err := os.OpenFile(filepath.Join(mounts[1], "locked"), os.O_RDWR, 0)
	must(t, err)
	defer other.Close() //nolint:errcheck // nothing was written
	try := func() error {
		err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			must(t, unix.Flock(int(other.Fd()), unix.LOCK_UN))
		}
		return err
	}
	cluster.Await(t, cluster.Patience, "the lock to be held", func() bool { return errors.Is(try(), unix.EWOULDBLOCK) })
	for range 100 {
		if err := try(); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Fatalf("a lock that another mount holds: %v", err)
		}
	}
	began := time.Now()
	must(t, syscall.Kill(-holder.Process.Pid, syscall.SIGKILL))
	_ = holder.Wait() // it was killed
	cluster.Await(t, cluster.Patience, "the lock of a killed process", func() bool { return try() == nil })
	t.Logf("a killed process's lock was free after %v", time.Since(began).Round(time.Millisecond))
}

func openDirect(t *testing.T, mount, name string, flags int) *os.File {
	t.Helper()
	return openFile(t, filepath.Join(mount, name), flags|unix.O_DIRECT)
}

// openFile opens a file until the test ends.
func openFile(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o644)
	must(t, err)
	t.Cleanup(func() { f.Close() }) //nolint:errcheck // each write was synced
	return f
}

// writeBlock fills the first block of a file with a byte.
func writeBlock(t *testing.T, f *os.File, b byte) {
	t.Helper()
	if _, err := f.WriteAt(block(b), 0); err != nil {
		t.Error(err)
	}
}

// block is one that a byte fills.
func block(b byte) []byte {
	all := vfs.AlignedBuffer(vfs.BlockSize)
	for i := range all {
		all[i] = b
	}
	return all
}

// readBlock is the byte that fills the first block of a file.
func readBlock(t *testing.T, f *os.File) byte {
	t.Helper()
	block := vfs.AlignedBuffer(vfs.BlockSize)
	if _, err := f.ReadAt(block, 0); err != nil {
		t.Error(err)
	}
	for _, b := range block {
		if b != block[0] {
			t.Errorf("%s: a torn block", f.Name())
			break
		}
	}
	return block[0]
}
