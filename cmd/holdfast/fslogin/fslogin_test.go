// SPDX-License-Identifier: Apache-2.0

package fslogin

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/accounts"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

var _ service.Logins = (*Logins)(nil)

// The users of these tests.
const alice, mallory = 4711, 4712

// site is a volume that takes logins, and servers of it.
type site struct {
	t     *testing.T
	dir   string // what is beside login/
	login string
	a, b  *Logins
	g     *auth.Authenticator
}

func named(_ context.Context, uid uint32) (accounts.Account, error) {
	return accounts.Account{Identity: fmt.Sprintf("uid:%d", uid), Groups: []string{"group:g"}}, nil
}

func newSigner() *auth.Authenticator {
	g := auth.New(cluster.ID{1}, func() *access.Rules { return nil })
	g.SetKeys([]volume.SigningKey{{ID: "1-x", Private: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))}})
	return g
}

// newSite plays users by chown, which takes root.
func newSite(t *testing.T) *site {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can play other users")
	}
	s := &site{t: t, dir: t.TempDir(), g: newSigner()}
	f, err := osfs.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() }) //nolint:errcheck // a test's
	s.login = filepath.Join(s.dir, "login")
	s.must(f.MkdirPrivate(volume.SecretsDir), f.MkdirLogin(volume.LoginDir))
	const slack = 40 * time.Millisecond // the kernel's clock for files is coarse
	s.a, s.b = New(f, s.g, slack, named), New(f, s.g, slack, named)
	s.must(s.a.Look(), s.b.Look())
	return s
}

func (s *site) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// makes has a user make a directory with this mode.
func (s *site) makes(uid int, name string, mode os.FileMode) {
	s.t.Helper()
	s.must(os.Mkdir(name, mode), os.Chmod(name, mode), os.Chown(name, uid, uid))
}

// begin returns the path of the directory that a server names, and the challenge.
func (s *site) begin() (path, challenge string) {
	s.t.Helper()
	nonce, challenge, err := s.a.Begin()
	s.must(err)
	return filepath.Join(s.login, nonce), challenge
}

// refusedWith wants a refusal that says this.
func (s *site) refusedWith(why string, l *Logins, challenge string) {
	s.t.Helper()
	ticket, c, err := l.Finish(s.t.Context(), challenge, 0)
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || ticket != "" || c != nil || !strings.Contains(e.Message, why) || strings.Contains(e.Message, challenge) && challenge != "" {
		s.t.Errorf("got %v, %v; want a refusal that says %q", c, err, why)
	}
}

// Whose directory it is gets a ticket, from the server that named it or another one, and the directory is gone.
func TestLogin(t *testing.T) {
	s := newSite(t)
	for _, l := range []*Logins{s.a, s.b} {
		name, challenge := s.begin()
		s.makes(alice, name, 0o700)
		ticket, _, err := l.Finish(t.Context(), challenge, 0)
		s.must(err)
		c, err := s.g.Authenticate(ticket)
		s.must(err)
		if c.Identity != "uid:4711" || len(c.Groups) != 1 || c.Via != "filesystem" || c.Operator || c.Expires.Sub(c.Issued) != DefaultTime {
			t.Errorf("the ticket says %+v", c)
		}
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory is there: %v", err)
		}
	}
}

// The attacks on HTCondor's method, and on this one.
func TestAttacks(t *testing.T) {
	s := newSite(t)
	home := filepath.Join(s.dir, "home")
	s.makes(alice, home, 0o755)
	for why, do := range map[string]func(name string){
		"there is no directory": func(string) {},
		"that is no directory":  func(name string) { s.must(os.WriteFile(name, nil, 0o700), os.Chown(name, alice, alice)) },
		"has mode 0750":         func(name string) { s.makes(alice, name, 0o750) },
		"has mode 2700":         func(name string) { s.makes(alice, name, 0o700); s.must(os.Chmod(name, 0o700|os.ModeSetgid)) },
		"has mode 0777": func(name string) { // a directory of hers into which others may write, moved there
			own := filepath.Join(home, "open")
			s.makes(alice, own, 0o777)
			s.must(os.Rename(own, name))
		},
		"has directories in it": func(name string) { s.makes(alice, name, 0o700); s.makes(alice, name+"/x", 0o700) },
		"cannot be removed":     func(name string) { s.makes(alice, name, 0o700); s.must(os.WriteFile(name+"/x", nil, 0o600)) },
		"belongs to root":       func(name string) { s.makes(0, name, 0o700) },
	} {
		name, challenge := s.begin()
		do(name)
		s.refusedWith(why, s.a, challenge)
	}
	links := map[string]func(name string) error{
		"hard link":     func(name string) error { return os.Link(filepath.Join(home, "file"), name) },
		"symbolic link": func(name string) error { return os.Symlink(home, name) },
	}
	s.must(os.WriteFile(filepath.Join(home, "file"), nil, 0o600), os.Chown(filepath.Join(home, "file"), alice, alice), os.Chmod(home, 0o700))
	for _, link := range links {
		name, challenge := s.begin()
		s.must(link(name), os.Lchown(name, alice, alice))
		s.refusedWith("that is no directory", s.a, challenge)
	}
}

// A directory that was there before its name was given proves nothing, even if it was moved there.
func TestOlderDirectory(t *testing.T) {
	s := newSite(t)
	old := filepath.Join(s.dir, "old")
	s.makes(alice, old, 0o700)
	before := s.owner(old).Made
	for s.owner(s.login).Changed.Sub(before) < 100*time.Millisecond { // by the clock of the filesystem
		s.makes(alice, filepath.Join(s.login, "x"), 0o700)
		s.must(os.Remove(filepath.Join(s.login, "x")))
	}
	name, challenge := s.begin()
	s.must(os.Rename(old, name))
	s.refusedWith("older than its name", s.a, challenge)
}

func (s *site) owner(path string) osfs.Owned {
	s.t.Helper()
	name, err := filepath.Rel(s.dir, path)
	s.must(err)
	o, err := s.a.fs.Owner(name)
	s.must(err)
	return o
}

// A challenge counts once, and for who has it only: the name alone is worth nothing.
func TestChallenge(t *testing.T) {
	s := newSite(t)
	name, challenge := s.begin()
	s.makes(alice, name, 0o700)
	nonce := filepath.Base(name)
	for _, guess := range []string{nonce, "x" + challenge, challenge + "x", challenge[:len(challenge)-8], strings.Replace(challenge, ".", "", 1)} {
		s.refusedWith("no challenge", s.a, guess)
	}
	_, other := s.begin()
	s.refusedWith("there is no directory", s.a, other) // not hers
	ticket, err := s.g.Issue(&access.Caller{Identity: "user:x", Issued: time.Now(), Expires: time.Now().Add(time.Hour)})
	s.must(err)
	s.refusedWith("no challenge", s.a, strings.TrimPrefix(ticket, access.TicketPrefix))
	if _, err := s.g.Authenticate(access.TicketPrefix + challenge); err == nil {
		t.Error("a challenge is a ticket")
	}
	_, _, err = s.a.Finish(t.Context(), challenge, 0)
	s.must(err)
	s.makes(mallory, name, 0o700)
	s.refusedWith("used already", s.a, challenge)
	s.must(os.Remove(name))
	s.refusedWith("there is no directory", s.b, challenge) // which does not know that it was used
}

// A challenge counts for 30 seconds, and hardly before it was given.
func TestLate(t *testing.T) {
	g := newSigner()
	now := time.Now()
	for after, ok := range map[time.Duration]bool{0: true, auth.ChallengeTime - time.Second: true, auth.ChallengeTime + time.Second: false, -auth.ClockSlack + time.Second: true, -auth.ClockSlack - time.Second: false} {
		if _, age, err := g.OpenChallenge(g.Challenge("n", now), now.Add(after)); (err == nil) != ok || age < 0 {
			t.Errorf("%v after: %v, %v", after, age, err)
		}
	}
	other := auth.New(cluster.ID{2}, func() *access.Rules { return nil })
	if _, _, err := other.OpenChallenge(g.Challenge("n", now), now); err == nil {
		t.Error("a challenge of another cluster")
	}
}

// Who could move what others made in login/ could log in as them: then nobody logs in.
func TestLoginDirectory(t *testing.T) {
	s := newSite(t)
	for why, spoil := range map[string]func(){
		"not a directory of mode 1733": func() { s.must(os.Chmod(s.login, 0o733)) },
		"to the owner of secrets/":     func() { s.must(os.Chmod(s.login, 0o733|os.ModeSticky), os.Chown(s.login, mallory, -1)) },
		"init --logins":                func() { s.must(os.Remove(s.login)) },
	} {
		name, challenge := s.begin()
		s.makes(alice, name, 0o700)
		s.must(os.Chmod(s.login, 0o733|os.ModeSticky))
		done := func() {
			s.must(os.MkdirAll(s.login, 0o700), os.Chmod(s.login, 0o733|os.ModeSticky), os.Chown(s.login, 0, 0), s.a.Look())
		}
		s.must(os.RemoveAll(name))
		spoil()
		s.refusedWith(why, s.a, challenge)
		done()
	}
	s.must(os.Remove(s.login), s.a.Look())
	if _, _, err := s.a.Begin(); err == nil || !strings.Contains(err.Error(), "holdfast init --logins") {
		t.Errorf("without login/: %v", err)
	}
}

// What abandoned logins left goes by its age.
func TestSweep(t *testing.T) {
	s := newSite(t)
	old, young, full := filepath.Join(s.login, "old"), filepath.Join(s.login, "young"), filepath.Join(s.login, "full")
	for _, name := range []string{old, young, full} {
		s.makes(alice, name, 0o700)
	}
	s.makes(alice, full+"/x", 0o700)
	then := time.Now().Add(-2 * oldAfter)
	s.must(os.Chtimes(old, then, then), os.Chtimes(full, then, then), s.a.Look())
	if _, err := os.Lstat(old); err != nil {
		t.Errorf("it is swept too often: %v", err)
	}
	s.a.swept = time.Time{}
	s.must(s.a.Look())
	for name, there := range map[string]bool{old: false, young: true, full: true} {
		if _, err := os.Lstat(name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow is a volume whose answers are made by a test.
type slow struct {
	owner         func(name string) (osfs.Owned, error)
	listed, asked atomic.Int32
}

func (v *slow) Owner(name string) (osfs.Owned, error) {
	switch name {
	case volume.LoginDir:
		return osfs.Owned{Info: vfs.Info{Type: vfs.TypeDir, Mode: osfs.LoginMode}}, nil
	case volume.SecretsDir:
		return osfs.Owned{}, nil
	}
	v.asked.Add(1)
	return v.owner(name)
}
func (v *slow) SomeNames(string, int) ([]string, error) { v.listed.Add(1); return nil, nil }
func (v *slow) Remove(string) error                     { return nil }

// A name that the cache of a network filesystem denies is asked for again behind a listing.
func TestCachedDenial(t *testing.T) {
	v := &slow{}
	v.owner = func(string) (osfs.Owned, error) {
		if v.asked.Load() == 1 {
			return osfs.Owned{}, syscall.ENOENT
		}
		return osfs.Owned{Info: vfs.Info{Type: vfs.TypeDir, Mode: 0o700, Nlink: 2}, UID: alice}, nil
	}
	l := New(v, newSigner(), 0, named)
	if err := l.Look(); err != nil {
		t.Fatal(err)
	}
	v.listed.Store(0)
	_, challenge, err := l.Begin()
	if err == nil {
		_, _, err = l.Finish(t.Context(), challenge, 0)
	}
	if err != nil || v.listed.Load() != 1 || v.asked.Load() != 2 {
		t.Errorf("%v, after %d listings and %d questions", err, v.listed.Load(), v.asked.Load())
	}
}

// A volume that hangs takes a few goroutines, and who logs in is answered in time.
func TestHangingVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		v := &slow{owner: func(string) (osfs.Owned, error) { <-hang; return osfs.Owned{}, syscall.EIO }}
		l := New(v, newSigner(), 0, named)
		if err := l.Look(); err != nil {
			t.Fatal(err)
		}
		const asked = 3 * maxWork
		answers := make(chan error, asked)
		for range asked {
			_, challenge, err := l.Begin()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _, err := l.Finish(t.Context(), challenge, 0)
				answers <- err
			}()
		}
		time.Sleep(workWait)
		synctest.Wait()
		for range asked {
			err := <-answers
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Status != cluster.StatusStorageUnavailable {
				t.Errorf("got %v", err)
			}
		}
		if len(l.work) != maxWork {
			t.Errorf("%d use the volume, want %d", len(l.work), maxWork)
		}
		close(hang)
		synctest.Wait()
		if len(l.work) != 0 {
			t.Errorf("%d use the volume yet", len(l.work))
		}
	})
}

func TestPeriod(t *testing.T) {
	l := New(&slow{}, newSigner(), 0, named)
	if err := l.Look(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{-1, time.Millisecond, MaxTime + 1} {
		if _, _, err := l.Finish(t.Context(), "x", d); err == nil || !strings.Contains(err.Error(), "at least 1s") {
			t.Errorf("%v: %v", d, err)
		}
	}
}
