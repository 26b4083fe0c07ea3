// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// person is a user of this host who has no secret.
type person struct {
	w    *world
	who  *syscall.Credential
	home string
}

// newPerson returns a user that every host has.
func newPerson(w *world, name string) *person {
	w.t.Helper()
	u, err := user.Lookup(name)
	if os.Getuid() != 0 || err != nil {
		w.t.Skipf("only root can be another user: %v", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32) // they are numbers
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	p := &person{w: w, who: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, home: w.t.TempDir()}
	binary := filepath.Dir(os.Getenv(binaryEnv))
	for _, dir := range []string{binary, filepath.Dir(p.home), p.home, filepath.Dir(w.dir)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Chown(p.home, int(uid), int(gid)); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// command is a command of the user's.
func (p *person) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "HOLDFAST_ENDPOINTS=" + p.w.endpoints, binaryEnv + "=" + os.Getenv(binaryEnv)}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.who}
	return cmd
}

// try runs holdfast.
func (p *person) try(args ...string) result {
	p.w.t.Helper()
	cmd := p.command(os.Getenv(binaryEnv), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	p.w.t.Logf("%d$ holdfast %s\n%s%s[%d, %v]", p.who.Uid, strings.Join(args, " "), r.out, r.errs, r.code, err)
	return r
}

// Whatever users leave in login/, the servers' user can switch logins off.
func TestLoginsEndWithWhatUsersLeft(t *testing.T) {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "none")}
	daemon := newPerson(w, "daemon")
	other, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(other.Uid)
	dir := filepath.Join(daemon.home, "volume")
	if r := daemon.try("init", "--logins", "--volume", dir, "--server", "1=127.0.0.1:7601"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	login := filepath.Join(dir, "login")
	for _, made := range []string{"empty", "kept", "kept/inside"} {
		made = filepath.Join(login, made)
		if err := errors.Join(os.Mkdir(made, 0o700), os.Chown(made, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	if r := daemon.try("access", "logins", "--off", "--volume", dir); r.code != 0 || !strings.Contains(r.out, "nobody logs in any more") || !strings.Contains(r.out, "until root removes it") {
		t.Errorf("%+v", r)
	}
	if info, err := os.Stat(login); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("login/ has mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(login); err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("login/ has %v, %v", left, err)
	}
	for range 2 { // what is left goes, and what is gone is no error
		if err := os.RemoveAll(filepath.Join(login, "kept")); err != nil {
			t.Fatal(err)
		}
		if r := daemon.try("access", "logins", "--off", "--volume", dir); r.code != 0 || strings.Contains(r.out, "root") {
			t.Errorf("%+v", r)
		}
		if _, err := os.Stat(login); !os.IsNotExist(err) {
			t.Errorf("login/: %v", err)
		}
	}
}

// libraryEnv has the test's own binary be a program of a user with the library.
const libraryEnv = "HOLDFAST_TEST_LIBRARY"

// libraryMain is the main of such a program: it takes a lock.
func libraryMain() (is bool) {
	dir := os.Getenv(libraryEnv)
	if dir == "" {
		return false
	}
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{dir}, Credential: clientlib.FromEnvironment})
	if err == nil {
		_, err = c.Acquire(context.Background(), "by-library", clientlib.AcquireOptions{})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return true
}

// TestFirstLockOfAnotherUser: from an empty directory to the first lock of a user who has no secret, on a volume whose
// rules want to know who it is.
func TestFirstLockOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	at := fmt.Sprintf("127.0.0.1:%d", freeBase(t))
	w := &world{t: t, dir: filepath.Join(dir, "volume"), endpoints: at, logs: &logs{}}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	daemon := newPerson(w, "daemon")
	w.do("", "init", "--volume", w.dir, "--server", "1="+at, "--policy", "team", "--logins")
	w.alone(t.TempDir())
	await(t, "the first term", func() bool { return w.try("", "status", "--timeout", "1s").code == 0 })
	if r := daemon.try("acquire", "a", "--timeout", "5s"); r.code == 0 {
		t.Errorf("without the volume's path, nobody is known: %+v", r)
	}
	w.endpoints = w.dir
	if r := daemon.try("acquire", "a", "--ttl", "1m"); r.code != 0 {
		t.Fatalf("the first lock: %+v", r)
	}
	if r := daemon.try("whoami"); !strings.Contains(r.out, "user:daemon (filesystem)") {
		t.Errorf("got %+v", r)
	}
	kept, err := filepath.Glob(daemon.home + "/.config/holdfast/*.ticket")
	if err != nil || len(kept) != 1 {
		t.Fatalf("the ticket is kept in %q, %v", kept, err)
	}
	if err := os.Remove(kept[0]); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(daemon.home, "library.test")
	if out, err := exec.Command("cp", "/proc/"+strconv.Itoa(os.Getpid())+"/exe", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := daemon.command(copied)
	program.Env = append(program.Env, libraryEnv+"="+w.dir)
	if out, err := program.CombinedOutput(); err != nil {
		t.Errorf("a program with the library: %v: %s", err, out)
	}
	if r := daemon.try("login", "--volume", w.dir, "--for", "1h"); r.code != 0 || !strings.Contains(r.out, "you are user:daemon, group:daemon until") || strings.Contains(r.out, "operator") {
		t.Errorf("got %+v", r)
	}
	if r := w.try("", "whoami"); !strings.Contains(r.out, "an operator") {
		t.Errorf("the servers' user: %+v", r)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "login")); err != nil || len(left) > 0 {
		t.Errorf("login/ has %v, %v", left, err)
	}
	if r := w.do("", "fsck", "--volume", w.dir); strings.Contains(r, "login") {
		t.Errorf("fsck: %s", r)
	}
	w.do("", "access", "logins", "--off", "--volume", w.dir)
	if r := daemon.try("login", "--volume", w.dir); r.code == 0 || !strings.Contains(r.errs, "holdfast access logins") {
		t.Errorf("logins are switched off: %+v", r)
	}
	w.do("", "access", "logins", "--volume", w.dir)
	await(t, "logins", func() bool { return daemon.try("login", "--volume", w.dir).code == 0 })
}
