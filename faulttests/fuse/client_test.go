// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// order is one system call that a client shall make.
type order struct {
	Call  string
	Path  string
	To    string // of rename and link
	Flags int    // of open
	FD    int    // of what works on an open file, an answer of open
	Off   int64
	Size  int64
	Data  []byte
}

// answer is what became of it.
type answer struct {
	Errno syscall.Errno
	FD    int
	Data  []byte
	Names []string
	Stat  unix.Stat_t
}

// client is a process on a mount. One order at a time.
type client struct {
	t    testing.TB
	dir  string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when the process is gone

	mu  sync.Mutex
	enc *json.Encoder
	dec *json.Decoder
}

// newClient starts a process that works on a mount.
func newClient(t *testing.T, m *fuse.Mount) *client {
	t.Helper()
	return newClientAt(t, m.Dir())
}

func newClientAt(t testing.TB, dir string) *client {
	t.Helper()
	c := &client{t: t, dir: dir, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), envClient+"=1")
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.cmd.StdinPipe()
	must(t, err)
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	c.in, c.enc, c.dec = in, json.NewEncoder(in), json.NewDecoder(out)
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // it ends by signal
	}()
	t.Cleanup(c.kill)
	return c
}

// kill ends the process as kill -9 does, and says how long that took at most.
func (c *client) kill() {
	c.t.Helper()
	_ = c.cmd.Process.Kill() // it may be gone
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		c.t.Errorf("a killed client lives on")
	}
}

// begin gives an order; its answer comes when the call returns.
func (c *client) begin(o order) <-chan answer {
	o.Path, o.To = filepath.Join(c.dir, o.Path), filepath.Join(c.dir, o.To)
	out := make(chan answer, 1)
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		var a answer
		if err := errors.Join(c.enc.Encode(o), c.dec.Decode(&a)); err != nil {
			a.Errno = syscall.ECONNABORTED
		}
		out <- a
	}()
	return out
}

// do gives an order and waits.
func (c *client) do(o order) answer {
	c.t.Helper()
	select {
	case a := <-c.begin(o):
		return a
	case <-time.After(time.Minute):
		c.t.Fatalf("%s %s hangs", o.Call, o.Path)
		return answer{}
	}
}

// ok is do for what must succeed.
func (c *client) ok(o order) answer {
	c.t.Helper()
	a := c.do(o)
	if a.Errno != 0 {
		c.t.Fatalf("%s %s %s: %v", o.Call, o.Path, o.To, a.Errno)
	}
	return a
}

// fails is do for what must fail.
func (c *client) fails(o order, want syscall.Errno) {
	c.t.Helper()
	if a := c.do(o); a.Errno != want {
		c.t.Errorf("%s %s %s: %v, want %v", o.Call, o.Path, o.To, a.Errno, want)
	}
}

func (c *client) open(path string, flags int) int {
	c.t.Helper()
	return c.ok(order{Call: "open", Path: path, Flags: flags}).FD
}

func (c *client) write(fd int, off int64, data string) {
	c.t.Helper()
	c.ok(order{Call: "write", FD: fd, Off: off, Data: []byte(data)})
}

func (c *client) read(fd int, off, size int64) string {
	c.t.Helper()
	return string(c.ok(order{Call: "read", FD: fd, Off: off, Size: size}).Data)
}

func (c *client) onFile(call string, fd int) { c.t.Helper(); c.ok(order{Call: call, FD: fd}) }

func (c *client) onPath(call, path string) { c.t.Helper(); c.ok(order{Call: call, Path: path}) }

// put makes a file; synced with its name, if sync is set.
func (c *client) put(path, content string, sync bool) {
	c.t.Helper()
	fd := c.open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR)
	c.write(fd, 0, content)
	if sync {
		c.onFile("fsync", fd)
		c.onPath("syncdir", filepath.Dir(path))
	}
	c.onFile("close", fd)
}

// obey is the life of a client's process.
func obey(in io.Reader, out io.Writer) int {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := dec.Decode(&o); err != nil {
			return 0
		}
		var a answer
		if err := carryOut(&o, &a); err != nil {
			errno, is := errors.AsType[syscall.Errno](err)
			if !is {
				errno = syscall.ENOTSUP
			}
			a.Errno = errno
		}
		if err := enc.Encode(a); err != nil {
			return 1
		}
	}
}

// carryOut makes one system call, or few.
func carryOut(o *order, a *answer) (err error) {
	switch o.Call {
	case "open":
		a.FD, err = unix.Open(o.Path, o.Flags|unix.O_CLOEXEC, 0o644)
	case "close":
		err = unix.Close(o.FD)
	case "read":
		buf := vfs.AlignedBuffer(int(o.Size+vfs.BlockSize-1) / vfs.BlockSize * vfs.BlockSize)[:o.Size]
		var n int
		n, err = unix.Pread(o.FD, buf, o.Off)
		a.Data = buf[:max(0, n)]
	case "write":
		buf := vfs.AlignedBuffer((len(o.Data) + vfs.BlockSize - 1) / vfs.BlockSize * vfs.BlockSize)[:len(o.Data)]
		copy(buf, o.Data)
		_, err = unix.Pwrite(o.FD, buf, o.Off)
	case "writes": // Size of them, one behind the other
		buf := vfs.AlignedBuffer(len(o.Data))
		for i := int64(0); i < o.Size && err == nil; i++ {
			_, err = unix.Pwrite(o.FD, buf, o.Off+i*int64(len(buf)))
		}
	case "fsync":
		err = unix.Fsync(o.FD)
	case "fdatasync":
		err = unix.Fdatasync(o.FD)
	case "truncate":
		err = unix.Ftruncate(o.FD, o.Size)
	case "fallocate":
		err = unix.Fallocate(o.FD, 0, o.Off, o.Size)
	case "fstat":
		err = unix.Fstat(o.FD, &a.Stat)
	case "statx": // as the product asks: the share, not a cache
		var st unix.Statx_t
		err = unix.Statx(o.FD, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
		a.Stat.Ino, a.Stat.Size, a.Stat.Nlink = st.Ino, int64(st.Size), uint64(st.Nlink)
	case "flock":
		err = unix.Flock(o.FD, o.Flags)
	default:
		return carryOutNames(o, a)
	}
	return err
}

func carryOutNames(o *order, a *answer) (err error) {
	switch o.Call {
	case "stat":
		err = unix.Lstat(o.Path, &a.Stat)
	case "mkdir":
		err = unix.Mkdir(o.Path, 0o755)
	case "rename":
		err = unix.Rename(o.Path, o.To)
	case "link":
		err = unix.Link(o.Path, o.To)
	case "unlink":
		err = unix.Unlink(o.Path)
	case "rmdir":
		err = unix.Rmdir(o.Path)
	case "statfs":
		var st unix.Statfs_t
		err = unix.Statfs(o.Path, &st)
	case "list":
		var entries []fs.DirEntry
		entries, err = os.ReadDir(o.Path)
		for _, e := range entries {
			a.Names = append(a.Names, e.Name())
		}
	case "syncdir":
		var fd int
		if fd, err = unix.Open(o.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			err = errors.Join(unix.Fsync(fd), unix.Close(fd))
		}
	default:
		err = syscall.ENOSYS
	}
	return err
}
