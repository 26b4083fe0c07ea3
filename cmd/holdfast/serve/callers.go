// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/accounts"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/fslogin"
	rules "github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

const (
	// keysEvery is how often a server looks for keys to sign with.
	keysEvery = 10 * time.Second
	// expiredEvery is how often it looks whose credential has expired under way.
	expiredEvery = 30 * time.Second
)

// loginsEvery is how often it looks whether users may log in by the filesystem.
const loginsEvery = 5 * time.Second

// callers is what this server knows of its callers: by the keys with which the volume's servers sign, and by the access rules.
type callers struct {
	*auth.Authenticator
	fs    vfs.FS
	rules *access.Live
	// logins are by the filesystem.
	logins *fslogin.Logins
	names  *accounts.Names
	log    zerolog.Logger
	// keyless is set while there are no keys to sign with. It belongs to readKeys, which one goroutine calls.
	keyless bool
}

// openCallers reads rules and keys. A volume may have neither: then everybody may do everything.
func openCallers(fsys *osfs.FS, about volume.Cluster, log zerolog.Logger) (*callers, error) {
	rules, err := access.OpenLive(fsys, log)
	if err != nil {
		return nil, err
	}
	c := &callers{Authenticator: auth.New(about.ID, rules.Rules), fs: fsys, rules: rules, log: log, names: accounts.New()}
	c.RefreshBy(rules.Refresh)
	c.logins = fslogin.New(fsys, c.Authenticator, auth.ClockSlack, c.names.Of)
	_ = c.logins.Look() // run looks again
	return c, c.readKeys()
}

// readKeys has the server know the keys that are on the volume now. Where there are none any more, it forgets those that it
// knows at the second look: one may be made just now instead of one that has leaked.
func (c *callers) readKeys() error {
	keys, err := volume.ReadSigningKeys(c.fs)
	if errors.Is(err, volume.ErrNoSigningKey) {
		if c.keyless {
			c.SetKeys(nil) // the same again changes nothing
		}
		c.keyless = true
		return nil
	}
	if err != nil {
		return err
	}
	c.keyless = false
	c.SetKeys(volume.KeysAt(keys, time.Now())) // they change with time, too
	return nil
}

// run keeps rules and keys up to date until ctx ends, calls changed after each change of the rules, and endForbidden then and now and
// then. It may hang in the filesystem.
func (c *callers) run(ctx context.Context, changed func(*rules.Rules), endForbidden func()) {
	go c.rules.Run(ctx, func(r *rules.Rules) { endForbidden(); changed(r) })
	go repeat(ctx, expiredEvery, func() error { endForbidden(); return nil }, nil)
	go repeat(ctx, loginsEvery, c.logins.Look, func(err error) {
		c.log.Error().Err(err).Msg("whether users log in by the filesystem cannot be seen")
	})
	repeat(ctx, keysEvery, c.readKeys, func(err error) {
		c.log.Error().Err(err).Msg("tickets are verified by the keys that were read before")
	})
}

// repeat calls f every so often until ctx ends, and failed with an error of it that is not the one before.
func repeat(ctx context.Context, every time.Duration, f func() error, failed func(error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		why := ""
		if err := f(); err != nil {
			if why = err.Error(); why != last {
				failed(err)
			}
		}
		last = why
	}
}
