// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holder starts a process that has a file as its descriptor 3.
func holder(t *testing.T, f *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	return cmd
}

func end(cmd *exec.Cmd) {
	cmd.Process.Kill() //nolint:errcheck // it has ended
	cmd.Wait()         //nolint:errcheck // killed
}

// TestOpenFileIsFollowed from one process to those that inherited it, and no further.
func TestOpenFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() }) //nolint:errcheck // nothing is buffered
		return f
	}
	f := open()
	o, err := NewOpenFile(f)
	if err != nil {
		t.Skip(err)
	}
	other := holder(t, open())
	if o.Shared() {
		t.Errorf("process %d has an open file of its own of the path, and counts", other.Process.Pid)
	}
	parent, heir := holder(t, f), holder(t, f)
	if !o.Shared() || o.closed() || len(o.Keepers()) != 0 {
		t.Errorf("two have it open: shared %v, closed %v, keepers %v", o.Shared(), o.closed(), o.Keepers())
	}
	o.find()
	if oldest := o.users[0].pid; oldest != parent.Process.Pid {
		t.Errorf("process %d is the oldest user, want %d", oldest, parent.Process.Pid)
	}
	end(parent)
	for range 3 {
		if o.closed() {
			t.Fatal("the child has it, and it counts as closed")
		}
	}
	end(heir)
	if o.closed() {
		t.Error("one search found nothing, and it counts as closed: a process may have been forked meanwhile")
	}
	if !o.closed() {
		t.Error("two searches found nothing, and it counts as open")
	}
	spared := holder(t, f)
	o.Spare(spared.Process.Pid)
	if o.Shared() {
		t.Error("a helper counts")
	}
}

// TestOpenFileWithoutDescriptors: while nothing can be looked at, nothing counts as closed, and the
// guard does not count a command as dead.
func TestOpenFileWithoutDescriptors(t *testing.T) {
	_, o := openTemp(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	closed := false
	for range 3 {
		closed = o.closed() || closed
	}
	remains := (&guardian{}).remains()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if closed || !remains {
		t.Errorf("without a free descriptor: closed %v, want false; processes remain %v, want true", closed, remains)
	}
}

// asNobody calls f in a thread of another user, that may look into no process of root; and, if
// hide is true, has a /proc of its own which does not show them.
func asNobody(t *testing.T, hide bool, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root has processes that it may not look into when it is root no more")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if hide {
			if err := hideProcesses(); err != nil {
				done <- fmt.Errorf("hide processes: %w", err)
				return
			}
		}
		for _, call := range [][3]uintptr{ // of this thread alone; the groups, too, see what is hidden
			{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, nobody, nobody}, {unix.SYS_SETRESUID, nobody, nobody},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[2]); errno != 0 {
				done <- errno
				return
			}
		}
		// The kernel hides a process that changes its user, and the others look into this one.
		err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; hide && errors.Is(err, unix.EPERM) {
		t.Skip(err) // a container
	} else if err != nil {
		t.Fatal(err)
	}
}

// hideProcesses mounts /proc for this thread as clusters of many users do.
func hideProcesses() error {
	return errors.Join(
		unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"),
	)
}

const nobody = 65534

// openTemp returns an open file, for one test.
func openTemp(t *testing.T) (*os.File, *OpenFile) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() }) //nolint:errcheck // nothing is buffered
	o, err := NewOpenFile(f)
	if err != nil {
		t.Skip(err)
	}
	return f, o
}

// shut reports whether the open file counts as closed, after as many looks as that takes.
func (o *OpenFile) shut() bool {
	for range 3 {
		if o.closed() {
			return true
		}
	}
	return false
}

// TestOpenFileOfAnotherUser: whoever has it and becomes another user's keeps it until its end, also
// when the oldest user ends first, where processes are hidden, and for the guard.
func TestOpenFileOfAnotherUser(t *testing.T) {
	for name, hide := range map[string]bool{"shown": false, "hidden": true} {
		t.Run(name, func(t *testing.T) { anotherUsers(t, hide) })
	}
}

func anotherUsers(t *testing.T, hide bool) {
	f, o := openTemp(t)
	shell, changed := holder(t, f), holder(t, f)
	g := &guardian{file: &OpenFile{file: f, spared: o.spared}, killing: true}
	o.onUser = func(p process) {
		if !g.order([]string{"user", strconv.Itoa(p.pid), strconv.FormatUint(p.start, 10)}) {
			t.Errorf("the guard does not understand the order for %+v", p)
		}
	}
	o.find()
	look := func(when string, want bool) {
		t.Helper()
		asNobody(t, hide, func() {
			if shut := o.shut(); shut == want {
				t.Errorf("%s, it counts as closed: %v", when, shut)
			}
			for range 3 {
				g.sweep() // it may kill nothing
			}
			if g.killing != want {
				t.Errorf("%s, the guard has something to kill: %v", when, g.killing)
			}
		})
	}
	look("two processes that have become another user's have it", true)
	end(shell)
	look("the younger has it", true)
	if !hide {
		die(t, changed)
		look("nobody has it, but one is not reaped", false)
	}
	end(changed)
	look("nobody has it", false)
}

// die ends a process that is not reaped.
func die(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for p := (process{}); !p.ended; {
		p, _ = readProcess(cmd.Process.Pid)
	}
}

// TestZombieHasNothingOpen, though it may not be looked into.
func TestZombieHasNothingOpen(t *testing.T) {
	f, o := openTemp(t)
	only := holder(t, f)
	o.find()
	die(t, only)
	asNobody(t, false, func() {
		if o.keeps() {
			t.Error("a zombie keeps it")
		}
	})
}

// TestUsersAreSearchedForAgain while the oldest stays: a younger one may become another user's.
func TestUsersAreSearchedForAgain(t *testing.T) {
	f, o := openTemp(t)
	holder(t, f)
	o.closed()
	young, _ := readProcess(holder(t, f).Process.Pid)
	o.closed()
	if o.knows(young) {
		t.Error("each look searches")
	}
	o.due = time.Now()
	o.closed()
	if !o.knows(young) {
		t.Error("a search was due, and has not found the younger user")
	}
}

// TestLives has processes that have ended, are not reaped, or have the number of another.
func TestLives(t *testing.T) {
	cmd, p := sleeper(t)
	if other := (process{pid: p.pid, start: p.start + 1}); !p.lives() || other.lives() {
		t.Errorf("it lives: %v; the one before with its number: %v", p.lives(), other.lives())
	}
	die(t, cmd)
	if p.lives() {
		t.Error("a zombie lives")
	}
	cmd.Wait() //nolint:errcheck // killed
	if p.lives() {
		t.Error("who was reaped lives")
	}
}
