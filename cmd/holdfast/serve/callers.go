// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/auth"
	rules "github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// keysEvery is how often a server looks for keys to sign with.
const keysEvery = 10 * time.Second

// callers is what this server knows of its callers: by the keys with which the volume's servers sign, and by the access rules.
type callers struct {
	*auth.Authenticator
	fs    vfs.FS
	rules *access.Live
	log   zerolog.Logger
	said  string // the last error that was logged; of the goroutine of run
}

// openCallers reads rules and keys. A volume may have neither: then everybody may do everything.
func openCallers(fsys vfs.FS, about volume.Cluster, log zerolog.Logger) (*callers, error) {
	rules, err := access.OpenLive(fsys, log)
	if err != nil {
		return nil, err
	}
	c := &callers{Authenticator: auth.New(about.ID, rules.Rules), fs: fsys, rules: rules, log: log}
	return c, c.readKeys()
}

// readKeys has the server know the keys that are on the volume now.
func (c *callers) readKeys() error {
	keys, err := volume.ReadSigningKeys(c.fs)
	switch {
	case errors.Is(err, volume.ErrNoSigningKey):
		return nil
	case err != nil:
		return err
	}
	c.SetKeys(keys)
	return nil
}

// run keeps rules and keys up to date until ctx ends, and calls changed after each change of the rules. It may hang in the
// filesystem.
func (c *callers) run(ctx context.Context, changed func()) {
	go c.rules.Run(ctx, func(*rules.Rules) { changed() })
	t := time.NewTicker(keysEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		why := ""
		if err := c.readKeys(); err != nil {
			why = err.Error()
		}
		if why != "" && why != c.said {
			c.log.Error().Msg("tickets are verified by the keys that were read before: " + why)
		}
		c.said = why
	}
}
