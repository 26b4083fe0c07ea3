// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/accounts"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// accepted returns what a listener makes of a connection of this process.
func accepted(t *testing.T, path string, names namesOf) net.Conn {
	t.Helper()
	u, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	l := newSocketListener(u, names, zerolog.Nop())
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // a test's
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test's
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() }) //nolint:errcheck // a test's
	return there
}

// A connection to the socket says whose it is, by the kernel's word.
func TestSocketKnowsItsUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := accepted(t, path, func(_ context.Context, uid uint32, groups []uint32) (accounts.Account, error) {
		if uid != uint32(os.Getuid()) || !slices.Contains(groups, uint32(os.Getgid())) {
			t.Errorf("user %d, groups %v", uid, groups)
		}
		return accounts.Account{Identity: "user:me", Groups: []string{"group:g"}}, nil
	})
	is := serving.CallerAt(c.RemoteAddr())
	if is.Name() != "user:me" || is.Via != "socket" || is.Issued.IsZero() || !is.Expires.IsZero() || is.Operator || !slices.Equal(is.Groups, []string{"group:g"}) {
		t.Errorf("got %+v", is)
	}
	if _, ok := serving.PlainAddr(c.RemoteAddr()).(*net.UnixAddr); !ok {
		t.Errorf("it is from %T", serving.PlainAddr(c.RemoteAddr()))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("%v, %v", info, err)
	}
}

// Whoever cannot be found out is served, as nobody.
func TestSocketOfNobody(t *testing.T) {
	c := accepted(t, filepath.Join(t.TempDir(), "s"), func(context.Context, uint32, []uint32) (accounts.Account, error) {
		return accounts.Account{Identity: "user:me"}, errors.New("nobody")
	})
	if is := serving.CallerAt(c.RemoteAddr()); is != nil {
		t.Errorf("it is %+v", is)
	}
}

// A socket that a dead process left is replaced; that of a living one, or another file, is not.
func TestSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := listenSocket(path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, %v", l, err)
	}
	first.SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Close(), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if l, err := listenSocket(path); err == nil {
		t.Errorf("a file is replaced: %v", l)
	}
}
