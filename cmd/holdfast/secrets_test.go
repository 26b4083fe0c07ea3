// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// offVolume is a volume of three servers, each of which has its own copy of the secrets.
type offVolume struct {
	*world
	base int
}

// secrets returns the directory of a server.
func (v *offVolume) secrets(id int) string { return fmt.Sprintf("%s-secrets-%d", v.dir, id) }

// copyTo copies the directory of server 1 to that of another, as an operator does between hosts.
func (v *offVolume) copyTo(id int) {
	v.t.Helper()
	if out, err := exec.Command("cp", "-a", v.secrets(1)+"/.", v.secrets(id)).CombinedOutput(); err != nil {
		v.t.Fatalf("%v: %s", err, out)
	}
}

// refused wants a server that does not start, and says this.
func (v *offVolume) refused(secrets, says string) {
	v.t.Helper()
	args := []string{"server", "--id", "1", "--volume", v.dir, "--data-dir", "none"}
	if secrets != "" {
		args = append(args, "--secrets", secrets)
	}
	if r := v.try("", args...); r.code == 0 || !strings.Contains(r.errs, says) {
		v.t.Errorf("a server with --secrets %q: %+v, want %q", secrets, r, says)
	}
}

func newOffVolume(t *testing.T) *offVolume {
	t.Helper()
	v := &offVolume{&world{t: t, dir: filepath.Join(t.TempDir(), "volume"), logs: &logs{}}, freeBase(t)}
	v.endpoints = v.dir
	args := []string{"init", "--volume", v.dir, "--secrets", v.secrets(1)}
	for i := range 3 {
		args = append(args, "--server", fmt.Sprintf("%d=127.0.0.1:%d", i+1, v.base+i))
	}
	if out := v.do("", args...); !strings.Contains(out, "--secrets "+v.secrets(1)) || !strings.Contains(out, "copy it") {
		t.Errorf("init says\n%s", out)
	}
	return v
}

// start starts all servers.
func (v *offVolume) start() {
	for id := 1; id <= 3; id++ {
		cmd := exec.Command(os.Getenv(binaryEnv), "server", "--id", fmt.Sprint(id), "--volume", v.dir, "--secrets", v.secrets(id), "--data-dir", "none", "--log-format", "json")
		cmd.Stderr = v.logs
		if err := cmd.Start(); err != nil {
			v.t.Fatal(err)
		}
		v.t.Cleanup(func() {
			cmd.Process.Kill() //nolint:errcheck // it may have ended
			cmd.Wait()         //nolint:errcheck // as it was told
		})
	}
	v.t.Cleanup(func() {
		if v.t.Failed() {
			v.t.Logf("the servers said:\n%s", v.logs)
		}
	})
	await(v.t, "a primary", func() bool { return v.try("", "status", "--timeout", "2s").code == 0 })
}

// clean wants no private key anywhere on the volume.
func (v *offVolume) clean() {
	v.t.Helper()
	err := filepath.WalkDir(v.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it was removed meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("PRIVATE KEY")) {
			v.t.Errorf("%s has a key", path)
		}
		return nil
	})
	if info, statErr := os.Lstat(filepath.Join(v.dir, "secrets")); err != nil || statErr != nil || !info.Mode().IsRegular() {
		v.t.Errorf("secrets on the volume: %v, %v, %v", info, statErr, err)
	}
}

// Three servers with a copy of the secrets each serve as others do; nothing secret is on the volume, whatever is typed.
func TestSecretsOffTheVolume(t *testing.T) {
	v := newOffVolume(t)
	v.refused("", "--secrets DIR")
	v.refused(v.secrets(2), "is not there on this host: copy it")
	v.copyTo(2)
	v.copyTo(3)
	v.start()
	if r := v.try("", "acquire", "a"); r.code == 0 {
		t.Error("a command without the secrets is an operator's")
	}
	for _, args := range [][]string{{"secure", "offer"}, {"secure", "rotate", "ca", "--now"}, {"secure", "rotate", "signing"}} {
		if r := v.try("", append(args, "--volume", v.dir)...); r.code == 0 || !strings.Contains(r.errs, "HOLDFAST_SECRETS") {
			t.Errorf("%v without the secrets: %+v", args, r)
		}
	}
	if r := v.try("", "fsck", "--volume", v.dir); r.code != 0 || !strings.Contains(r.out, "the secrets are not on the volume") {
		t.Errorf("fsck: %+v", r)
	}
	t.Setenv("HOLDFAST_SECRETS", v.secrets(1))
	v.do("", "acquire", "a")
	if who := v.do("", "whoami"); !strings.Contains(who, "operator") {
		t.Errorf("with the secrets one is %s", who)
	}
	if r := v.try("", "fsck", "--volume", v.dir); r.code != 0 || strings.Contains(r.out, "secrets") {
		t.Errorf("fsck with the secrets: %+v", r)
	}
	key := strings.TrimSpace(v.do("", "key", "create", "ci", "--volume", v.dir))
	v.rotations()
	v.backups()
	v.clean()
	v.endpoints = strings.TrimSpace(v.do("", "join", "--volume", v.dir))
	t.Setenv("HOLDFAST_SECRETS", "")
	t.Setenv("HOLDFAST_KEY", key)
	v.do("", "acquire", "theirs")
}

// rotations makes new keys at server 1's host: the others use them when they were copied, and a copy that is behind makes none.
func (v *offVolume) rotations() {
	t := v.t
	done := make(chan result, 1)
	go func() { done <- v.try("", "secure", "rotate", "ca", "--volume", v.dir) }()
	await(t, "a new authority", func() bool {
		_, err := os.Stat(filepath.Join(v.secrets(1), "ca-2.key"))
		return err == nil
	})
	v.copyTo(2)
	v.copyTo(3)
	if r := <-done; r.code != 0 {
		t.Fatalf("rotate ca: %+v", r)
	}
	v.do("", "show", "a")
	v.do("", "secure", "rotate", "signing", "--volume", v.dir)
	if r := v.try("", "secure", "rotate", "signing", "--volume", v.dir, "--secrets", v.secrets(3)); r.code == 0 || !strings.Contains(r.errs, "not up to date") {
		t.Errorf("a rotation with an old copy: %+v", r)
	}
	await(t, "a warning of an old copy", func() bool {
		return strings.Contains(v.try("", "status").out, "this directory of secrets is not up to date")
	})
	v.copyTo(2)
	v.copyTo(3)
	await(t, "the end of the warning", func() bool {
		return !strings.Contains(v.try("", "status").out, "this directory of secrets is not up to date")
	})
}

// backups takes one with the secrets, and restores it with a directory of its own.
func (v *offVolume) backups() {
	t, dest := v.t, v.dir+"-backup"
	v.do("", "backup", "--volume", v.dir, "--secrets="+v.secrets(1), dest)
	if _, err := os.Stat(filepath.Join(dest, "secrets", "ca-2.key")); err != nil {
		t.Error(err)
	}
	restored, secrets := v.dir+"-restored", v.dir+"-secrets-restored"
	v.do("", "restore", dest, "--volume", restored, "--secrets", secrets, "--seen-lsn", "0", "--yes")
	r := &offVolume{&world{t: t, dir: restored}, 0}
	r.clean()
	for _, name := range []string{"ca-2.key", "cluster"} {
		if _, err := os.Stat(filepath.Join(secrets, name)); err != nil {
			t.Error(err)
		}
	}
	v.refused(secrets, "it is of cluster")
	if err := os.Chmod(secrets, 0o750); err != nil {
		t.Fatal(err)
	}
	v.refused(secrets, "others than its owner may look into it")
	if r := v.try("", "restore", dest, "--volume", v.dir+"-again", "--secrets", v.secrets(1), "--seen-lsn", "0", "--yes"); r.code == 0 || !strings.Contains(r.errs, "name an empty one") {
		t.Errorf("a restore over secrets that are in use: %+v", r)
	}
}
