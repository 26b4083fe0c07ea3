// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const nonce = "0123456789abcdef0123456789abcdef"

func site(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, directory), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t testing.TB, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() }) //nolint:errcheck // a test's
	return r
}

// A login/ that is led to another volume's, at any time, gets no directory there.
func TestOtherVolume(t *testing.T) {
	evil, good := site(t), site(t)
	root := open(t, evil)
	if err := errors.Join(os.Remove(filepath.Join(evil, directory)), os.Symlink(filepath.Join(good, directory), filepath.Join(evil, directory))); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDirectory(root, nonce); err == nil || !missing(filepath.Join(good, directory, nonce)) {
		t.Errorf("by a link: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(evil, directory)), os.Rename(evil, evil+".moved"), os.Symlink(good, evil)); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDirectory(root, nonce); err == nil || !missing(filepath.Join(good, directory, nonce)) {
		t.Errorf("by the path: %v", err)
	}
}

// The directory is for its owner only, and is there until it is removed.
func TestMakeDirectory(t *testing.T) {
	dir := site(t)
	remove, err := makeDirectory(open(t, dir), nonce)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, directory, nonce)
	if info, err := os.Lstat(name); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := makeDirectory(open(t, dir), nonce); !errors.Is(err, fs.ErrExist) {
		t.Errorf("what is there is taken: %v", err)
	}
	if remove(); !missing(name) {
		t.Error("it stays")
	}
}

func missing(name string) bool {
	_, err := os.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// A name that a server gives leads nowhere but into login/.
func FuzzMakeDirectory(f *testing.F) {
	for _, s := range []string{nonce, "", ".", "..", "../" + nonce[3:], nonce[1:], nonce + "0", strings.ToUpper(nonce), "/" + nonce[1:], nonce[:31] + "\x00", nonce[:30] + "é"} {
		f.Add(s)
	}
	dir := site(f)
	root := open(f, dir)
	f.Fuzz(func(t *testing.T, s string) {
		remove, err := makeDirectory(root, s)
		if err != nil {
			return
		}
		defer remove()
		all, err := os.ReadDir(filepath.Join(dir, directory))
		if err != nil || len(all) != 1 || all[0].Name() != s || len(s) != nonceLength {
			t.Errorf("%q made %v, %v", s, all, err)
		}
	})
}

// Only a server that has proved to be of the volume's cluster is asked.
func TestProved(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"plain text":          func(c net.Conn) net.Conn { return c },
		"TLS without a proof": func(c net.Conn) net.Conn { return tls.Client(c, &tls.Config{ServerName: "x"}) },
	} {
		here, there := net.Pipe()
		dial := proved(func(context.Context, string) (net.Conn, error) { return wrap(here), nil })
		if c, err := dial(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "has not proved") {
			t.Errorf("%s: %v, %v", name, c, err)
		}
		there.Close() //nolint:errcheck // a pipe
	}
}

func TestOff(t *testing.T) {
	if os.Geteuid() == 0 {
		if _, err := Get(t.Context(), site(t), 0); !errors.Is(err, ErrRoot) {
			t.Errorf("root: %v", err)
		}
		t.Skip("root is not asked for more")
	}
	if _, err := Get(t.Context(), t.TempDir(), 0); !errors.Is(err, ErrOff) {
		t.Errorf("no login/: %v", err)
	}
}
