// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// NoDataDir has a server keep nothing on a disk of its own.
const NoDataDir = "none"

// DefaultDataDir is where a server keeps its copy of the table unless it is told otherwise: on
// its own host, outside of the volume, so that a volume that was put back in time is noticed.
func DefaultDataDir(id volume.ClusterID, server cluster.ServerID) (string, error) {
	name := fmt.Sprintf("%v-%d", id, server)
	// Of a service of systemd, which may have several.
	if own, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); filepath.IsAbs(own) {
		return filepath.Join(own, name), nil
	}
	state := os.Getenv("XDG_STATE_HOME")
	switch {
	case os.Geteuid() == 0:
		state = "/var/lib"
	case !filepath.IsAbs(state):
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "holdfast", name), nil
}

// dataDir is the directory to use, made if need be; "" for none. Without the default one a
// server serves all the same, and says what it cannot notice.
func dataDir(named string, id volume.ClusterID, server cluster.ServerID, log zerolog.Logger) (string, error) {
	if named == NoDataDir {
		return "", nil
	}
	dir, err := named, error(nil)
	if named == "" {
		dir, err = DefaultDataDir(id, server)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	switch {
	case err == nil:
		return dir, nil
	case named != "":
		return "", fmt.Errorf("data directory: %w", err)
	}
	log.Warn().Err(err).Msg("no data directory: a backup that is put in the place of the volume will not be noticed by this server; give it one with --data-dir")
	return "", nil
}

// ErrDataDirUsed refuses a data directory that another process uses.
var ErrDataDirUsed = errors.New("another process uses the data directory")

// lockName is the file in a data directory whose flock the server holds that uses it. It says
// which one that is.
const lockName = "lock"

// lock takes the data directory for this process, which keeps it while it opens the volume again.
// Two servers in one directory, such as those of a volume and of a copy of it, would each take
// what the other one kept for what itself had committed. Where no lock can be taken it says so
// and goes on: what is there is checked as before.
func (p *process) lock(opt *Options) error {
	if opt.DataDir == "" || p.locked != nil && filepath.Dir(p.locked.Path()) == opt.DataDir {
		return nil
	}
	p.unlock()
	l := flock.New(filepath.Join(opt.DataDir, lockName), flock.SetPermissions(0o600))
	got, err := l.TryLock()
	switch {
	case err != nil:
		opt.Log.Warn().Err(err).Str("data_dir", opt.DataDir).Msg("the data directory cannot be locked: see that no other server uses it")
		return nil
	case !got:
		return fmt.Errorf("%w %s: it is of %s. End that one if it is to be replaced; a server of another volume, or of a copy of this one, needs a --data-dir of its own", ErrDataDirUsed, opt.DataDir, holder(l.Path()))
	}
	p.locked = l
	host, _ := os.Hostname() // for people only
	who := fmt.Sprintf("process %d on %s, server %d of volume %s\n", os.Getpid(), host, opt.Server, opt.Volume)
	if err := os.WriteFile(l.Path(), []byte(who), 0o600); err != nil {
		opt.Log.Warn().Err(err).Msg("data directory")
	}
	return nil
}

// unlock leaves the data directory to others.
func (p *process) unlock() {
	if p.locked != nil {
		p.locked.Unlock() //nolint:errcheck // the lock ends with its descriptor
	}
	p.locked = nil
}

// holder is what the holder of a lock says of itself.
func holder(lock string) string {
	b, err := os.ReadFile(lock)
	if who := strings.TrimSpace(string(b)); err == nil && who != "" {
		return who
	}
	return "a process that has not said which it is"
}
