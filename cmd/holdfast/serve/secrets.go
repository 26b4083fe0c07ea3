// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/secrets"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// openVolume opens the volume and reads its CLUSTER. It returns an error that says what to do if the volume's secrets are not on it and
// their directory was not named, or cannot be used: a server without them could serve no client. It returns an error that wraps
// volume.ErrTooOld if this binary is too old for the volume, on which then nothing was written.
func openVolume(ctx context.Context, opt *Options, p *process) (fsys *osfs.FS, c volume.Cluster, err error) {
	fsys, err = atVolume(ctx, opt, func() (*osfs.FS, error) {
		f, err := opt.open(opt.Volume)
		if err != nil {
			return nil, fmt.Errorf("%w: is the share mounted? A new volume is made with holdfast init", err)
		}
		return f, nil
	})
	if err != nil {
		return nil, c, err
	}
	c, err = atVolume(ctx, opt, func() (volume.Cluster, error) {
		c, err := volume.ReadCluster(fsys)
		if err == nil {
			err = volume.CheckLevel(ctx, fsys, c) // before anything is written
		}
		if err == nil {
			err = p.fits(ctx, fsys, c, opt)
		}
		if err == nil {
			err = attachSecrets(fsys, c, opt.Secrets)
		}
		return c, err
	})
	if err != nil {
		return nil, c, errors.Join(fmt.Errorf("volume %s: %w", opt.Volume, err), fsys.Close())
	}
	return fsys, c, nil
}

const (
	// unlistedWait is how long a server waits until it is in the list of servers, if it is started before it is added.
	unlistedWait = 10 * time.Minute
	// listedEvery is how often it looks, and unlistedEvery how often it logs what it waits for.
	listedEvery, unlistedEvery = time.Second, 10 * time.Second
)

// awaitListed reads the list of servers, and waits until the server is in it. It returns an error for a server that was removed, and for one that
// is not added in time: a wrong ID may have been typed. Where MEMBERS cannot be read, a server of CLUSTER starts all the same.
func awaitListed(ctx context.Context, fsys *osfs.FS, c volume.Cluster, opt *Options) (cluster.Membership, error) {
	t := time.NewTicker(listedEvery)
	defer t.Stop()
	began, told, wait := time.Now(), time.Time{}, cmp.Or(opt.unlisted, unlistedWait)
	for {
		list, err := atVolume(ctx, opt, func() (cluster.Membership, error) { return volume.ReadMembers(fsys, c) })
		if ctx.Err() != nil {
			return list, context.Cause(ctx)
		}
		if _, listed := list.Servers.Find(opt.Server); listed {
			if err != nil {
				opt.Log.Warn().Err(err).Msg("starting with the servers of CLUSTER")
			}
			if !told.IsZero() {
				tellManager(opt.Log, listedState())
			}
			return list, nil
		}
		if err := list.Admits(opt.Server); errors.Is(err, cluster.ErrRemoved) {
			return list, fmt.Errorf("volume %s: %w", opt.Volume, err)
		}
		why := notListed(list, err, opt)
		if opt.Server <= list.HighestID {
			return list, fmt.Errorf("%s: use one of these IDs, or add one above %d with holdfast member add", why, list.HighestID)
		}
		if time.Since(began) >= wait {
			return list, fmt.Errorf("%s, and was not added within %v: use one of these IDs, or type: holdfast member add %d=HOST", why, wait, opt.Server)
		}
		if time.Since(told) >= unlistedEvery {
			opt.Log.Warn().Msgf("%s. If the ID is wrong, stop this server and use one of these; if it is a new one, type: holdfast member add %d=HOST. Waiting for that, for %v", why, opt.Server, wait)
			tellManager(opt.Log, unlistedState(opt.Server))
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return list, context.Cause(ctx)
		case <-t.C:
		}
	}
}

// notListed says that a server is not in the list that was read, and what else may be wrong.
func notListed(list cluster.Membership, readErr error, opt *Options) string {
	why := fmt.Sprintf("server %d is not one of the servers %v of volume %s", opt.Server, list.Servers.IDs(), opt.Volume)
	if readErr != nil {
		why += fmt.Sprintf(", and whether it was added cannot be read (%v; a primary writes MEMBERS again; where none serves, type: holdfast fsck)", readErr)
	}
	return why
}

// attachSecrets has the volume's secrets be those in a directory of this host, if one is named.
func attachSecrets(fsys *osfs.FS, c volume.Cluster, dir string) error {
	if dir != "" {
		return secrets.Attach(fsys, c.ID, dir)
	}
	elsewhere, err := volume.SecretsElsewhere(fsys)
	if err == nil && elsewhere {
		err = volume.ErrSecretsElsewhere
	}
	return err
}

// copied watches whether this host's copy of the secrets lacks what was made on another host.
type copied struct {
	fs     vfs.FS
	log    zerolog.Logger
	behind atomic.Pointer[string] // nil = it is not
}

// look compares the copy with the volume.
func (c *copied) look() error {
	err := volume.SecretsBehind(c.fs)
	if !errors.Is(err, volume.ErrSecretsBehind) {
		c.behind.Store(nil)
		return err
	}
	text := err.Error()
	c.behind.Store(&text)
	return err
}

// run looks until ctx ends. It may hang in the filesystem.
func (c *copied) run(ctx context.Context) {
	tell := func(err error) { c.log.Error().Msg("the secrets of this server: " + err.Error()) }
	if err := c.look(); err != nil {
		tell(err)
	}
	repeat(ctx, keysEvery, c.look, tell)
}

// trouble returns what is wrong for status, which is the copy, else what other returns.
func (c *copied) trouble(other func() string) func() string {
	return func() string {
		text := other()
		if behind := c.behind.Load(); behind != nil && text != "" {
			text = *behind + "; " + text
		} else if behind != nil {
			text = *behind
		}
		return text
	}
}
