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

// guard knows this server's callers: by the keys with which the volume's servers sign, and by the access rules.
type guard struct {
	*auth.Guard
	fs    vfs.FS
	rules *access.Live
	log   zerolog.Logger
	said  string // the last error that was logged; of the goroutine of run
}

// openGuard reads rules and keys. A volume may have neither: then everybody may do everything.
func openGuard(fsys vfs.FS, c volume.Cluster, log zerolog.Logger) (*guard, error) {
	rules, err := access.OpenLive(fsys, log)
	if err != nil {
		return nil, err
	}
	g := &guard{Guard: auth.New(c.ID, rules.Rules), fs: fsys, rules: rules, log: log}
	return g, g.readKeys()
}

// readKeys has the guard know the keys that are on the volume now.
func (g *guard) readKeys() error {
	keys, err := volume.ReadSigningKeys(g.fs)
	switch {
	case errors.Is(err, volume.ErrNoSigningKey):
		return nil
	case err != nil:
		return err
	}
	g.SetKeys(keys)
	return nil
}

// run keeps rules and keys up to date until ctx ends, and calls changed after each change of the rules. It may hang in the
// filesystem.
func (g *guard) run(ctx context.Context, changed func()) {
	go g.rules.Run(ctx, func(*rules.Rules) { changed() })
	t := time.NewTicker(keysEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		why := ""
		if err := g.readKeys(); err != nil {
			why = err.Error()
		}
		if why != "" && why != g.said {
			g.log.Error().Msg("tickets are verified by the keys that were read before: " + why)
		}
		g.said = why
	}
}
