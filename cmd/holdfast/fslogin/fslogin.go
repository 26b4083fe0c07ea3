// SPDX-License-Identifier: Apache-2.0

// Package fslogin lets users of hosts that have the volume mounted log in without a key: the server names a directory,
// the user makes it in login/ through his own mount, and whose it is then says who he is. That is as strong as the
// ownership of files on that filesystem.
//
// The method is that of HTCondor (FS_REMOTE), with what was learned there: a directory, since a file of a victim can be
// hard-linked; of mode 0700, since a directory into which others may write can be moved; owned neither by root nor by
// nobody, which many file servers make of users that they do not know or trust. Here, in addition,
//
//   - login/ has mode 1733 and is the service's: nobody sees or moves what others made in it;
//   - the name is random, and to use it takes a challenge, which only who asked for the name has;
//   - the server removes the directory before it issues the ticket. Only one process can: so a directory counts once,
//     whichever servers are asked;
//   - the directory has to be younger than its name, by the clock of the filesystem.
//
// The filesystem may hang. So at most maxWork logins use it at once, and who waits is answered in time.
package fslogin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/accounts"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	// DefaultTime is how long a ticket counts where nothing else is asked for, and MaxTime how long at most.
	DefaultTime = 12 * time.Hour
	MaxTime     = 7 * 24 * time.Hour
	// maxWork is how many logins use the volume at once, stuck ones included, and workWait how long one waits for its
	// turn and its answer.
	maxWork  = 8
	workWait = 5 * time.Second
	// maxUsed bounds how many nonces are remembered that were used.
	maxUsed = 4096
	// oldAfter is the age at which what was left in login/ is removed, sweepEvery how often that is done, and maxSwept how
	// many names are looked at each time.
	oldAfter   = time.Hour
	sweepEvery = 10 * time.Minute
	maxSwept   = 1024
	nonceSize  = 16 // bytes
)

// Volume is what logins need of the volume; an *osfs.FS is one.
type Volume interface {
	Owner(name string) (osfs.Owned, error)
	SomeNames(name string, n int) ([]string, error)
	Remove(name string) error
}

// Signer signs challenges and tickets; an *auth.Authenticator is one.
type Signer interface {
	Challenge(nonce string, now time.Time) string
	OpenChallenge(text string, now time.Time) (nonce string, age time.Duration, err error)
	Issue(c *access.Caller) (string, error)
}

// Logins is the server's side. It implements service.Logins.
type Logins struct {
	fs     Volume
	signer Signer
	slack  time.Duration
	names  func(context.Context, uint32) (accounts.Account, error)
	// on is set while login/ is there.
	on   atomic.Bool
	work chan struct{}

	mu    sync.Mutex
	used  map[string]time.Time // nonces, and until when they must be known
	swept time.Time
}

// New returns logins of a volume. names finds out whose a number is. slack is how much clocks may differ. Nobody logs in before Look.
func New(fs Volume, signer Signer, slack time.Duration, names func(context.Context, uint32) (accounts.Account, error)) *Logins {
	return &Logins{
		fs: fs, signer: signer, slack: slack, names: names,
		work: make(chan struct{}, maxWork), used: map[string]time.Time{},
	}
}

// errOff says how logins are switched on.
func errOff() *wire.Error {
	return wire.Invalid("this volume takes no logins by its filesystem: the servers' user switches them on with holdfast init --logins, or holdfast access logins --volume DIR where the volume is there; else use a key")
}

// Begin returns the name of the directory that a user is to make in login/, and what the second call needs. The error is a
// *wire.Error. It does not touch the volume.
func (l *Logins) Begin() (nonce, challenge string, err error) {
	if !l.on.Load() {
		return "", "", errOff()
	}
	var b [nonceSize]byte
	_, _ = rand.Read(b[:]) // never fails
	nonce = hex.EncodeToString(b[:])
	if challenge = l.signer.Challenge(nonce, time.Now()); challenge == "" {
		return "", "", wire.Invalid(volume.ErrNoSigningKey.Error())
	}
	return nonce, challenge, nil
}

// Finish returns a ticket for the user who made the directory of a challenge, which counts for this long. The error is a *wire.Error, or that of ctx.
func (l *Logins) Finish(ctx context.Context, challenge string, period time.Duration) (string, *access.Caller, error) {
	if !l.on.Load() {
		return "", nil, errOff()
	}
	if period == 0 {
		period = DefaultTime
	}
	if period < time.Second || period > MaxTime {
		return "", nil, wire.Invalid(fmt.Sprintf("a login counts for at least 1s, and at most %v", MaxTime))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, workWait, busy("the volume does not answer, or too many log in: try again"))
	defer cancel()
	select {
	case l.work <- struct{}{}:
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	type result struct {
		ticket string
		c      *access.Caller
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-l.work }()
		ticket, c, err := l.finish(ctx, challenge, period)
		done <- result{ticket, c, err}
	}()
	select {
	case r := <-done:
		return r.ticket, r.c, r.err
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
}

func busy(why string) error {
	return &wire.Error{Status: cluster.StatusStorageUnavailable, Message: why}
}

func refused(why string) error {
	return &wire.Error{Status: cluster.StatusUnauthenticated, Message: "login: " + why}
}

func (l *Logins) finish(ctx context.Context, challenge string, period time.Duration) (string, *access.Caller, error) {
	now := time.Now()
	nonce, age, err := l.signer.OpenChallenge(challenge, now)
	if err != nil {
		return "", nil, refused(err.Error())
	}
	if !l.use(nonce, now) {
		return "", nil, refused("this challenge was used already: begin anew")
	}
	uid, err := l.prove(nonce, now.Add(-age))
	if err != nil {
		return "", nil, err
	}
	a, err := l.names(ctx, uid)
	if err != nil {
		return "", nil, refused(fmt.Sprintf("user %d: %v", uid, err))
	}
	c := &access.Caller{Identity: a.Identity, Groups: a.Groups, Via: "filesystem", Issued: now, Expires: now.Add(period)}
	ticket, err := l.signer.Issue(c)
	if err != nil {
		return "", nil, refused(err.Error())
	}
	return ticket, c, nil
}

// prove returns the user who made the directory of a nonce that was given then, and removes it.
func (l *Logins) prove(nonce string, given time.Time) (uid uint32, err error) {
	if err := l.checkLogin(); err != nil {
		return 0, err
	}
	name := volume.LoginDir + "/" + nonce
	made, err := l.find(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, refused("there is no directory " + name + " on the volume: make it with mode 0700 before you ask again")
	case err != nil:
		return 0, busy("the volume: " + err.Error())
	}
	if err := judge(made); err != nil {
		return 0, err
	}
	// It counts for who removes it: nobody else can.
	if err := l.fs.Remove(name); err != nil {
		return 0, refused("the directory cannot be removed (it has to be empty, and counts once): " + err.Error())
	}
	after, err := l.fs.Owner(volume.LoginDir)
	if err != nil {
		return 0, busy("the volume: " + err.Error())
	}
	// The removal changed login/ just now. So both times are of one clock.
	if after.Changed.Sub(made.Made) > time.Since(given)+l.slack {
		return 0, refused("the directory is older than its name")
	}
	return made.UID, nil
}

// checkLogin returns an error unless login/ is such that nobody but the service can move what others made in it.
func (l *Logins) checkLogin() error {
	login, err := l.fs.Owner(volume.LoginDir)
	if errors.Is(err, fs.ErrNotExist) {
		l.on.Store(false)
		return errOff()
	}
	if err != nil {
		return busy("the volume: " + err.Error())
	}
	secrets, err := l.fs.Owner(volume.SecretsDir)
	if err != nil {
		return busy("the volume: " + err.Error())
	}
	if login.Type != vfs.TypeDir || login.Mode != osfs.LoginMode || login.UID != secrets.UID {
		return wire.Invalid(fmt.Sprintf("%s/ on the volume is not a directory of mode %o that belongs to the owner of %s/: the servers' user makes it so with holdfast access logins --volume DIR", volume.LoginDir, osfs.LoginMode, volume.SecretsDir))
	}
	return nil
}

// find describes a name that was not asked for before, so no cache should know it. If one does, it is made to look again.
func (l *Logins) find(name string) (osfs.Owned, error) {
	o, err := l.fs.Owner(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	if _, err := l.fs.SomeNames(volume.LoginDir, 1); err != nil {
		return o, err
	}
	return l.fs.Owner(name)
}

// judge returns an error unless what a user made proves who he is.
func judge(o osfs.Owned) error {
	switch {
	case o.Type != vfs.TypeDir:
		return refused("that is no directory: others can give a file of yours another name")
	case o.Mode != 0o700:
		return refused(fmt.Sprintf("the directory has mode %04o, and not 0700: others could have moved it there", o.Mode))
	case o.Nlink > 2:
		return refused("the directory has directories in it")
	case o.UID == 0:
		return refused("the directory belongs to root, which on many filesystems is root of any host: log in as another user, or use a key")
	}
	return nil
}

// use reports whether a nonce was not used at this server so far, and notes that it is.
func (l *Logins) use(nonce string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.used[nonce]; ok {
		return false
	}
	if len(l.used) >= maxUsed {
		for n, until := range l.used {
			if now.After(until) {
				delete(l.used, n)
			}
		}
	}
	if len(l.used) >= maxUsed {
		clear(l.used) // the directory counts once nevertheless
	}
	l.used[nonce] = now.Add(time.Minute)
	return true
}

// Look finds out whether logins are switched on, and now and then removes what abandoned logins left. It may hang.
func (l *Logins) Look() error {
	_, err := l.fs.Owner(volume.LoginDir)
	if err := vfs.IgnoreMissing(err); err != nil {
		return err
	}
	if l.on.Store(err == nil); err != nil {
		return nil
	}
	now := time.Now()
	l.mu.Lock()
	due := now.Sub(l.swept) >= sweepEvery
	l.mu.Unlock()
	if !due {
		return nil
	}
	l.mu.Lock()
	l.swept = now
	l.mu.Unlock()
	names, err := l.fs.SomeNames(volume.LoginDir, maxSwept)
	for _, n := range names {
		name := volume.LoginDir + "/" + n
		if o, err := l.fs.Owner(name); err == nil && now.Sub(o.Changed) > oldAfter {
			_ = l.fs.Remove(name) // what is not empty stays
		}
	}
	return err
}
