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
)

// NoDataDir as a data directory means none: nothing is kept on the server's own disk.
const NoDataDir = "none"

// DefaultDataDir returns the default directory for a server's copy of the table: on its own host,
// outside of the volume, so that a volume that was rolled back is noticed.
func DefaultDataDir(id cluster.ID, server cluster.ServerID) (string, error) {
	name := fmt.Sprintf("%v-%d", id, server)
	// Set by systemd for a service, which may have several.
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

// dataDir returns the directory to use, and makes it; "" for none. If the default one cannot be
// made, a server serves without it, and logs what it cannot notice.
func dataDir(named string, id cluster.ID, server cluster.ServerID, log zerolog.Logger) (string, error) {
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

// lockName is the file in a data directory whose flock is held by the server that uses it. It
// describes that server.
const lockName = "lock"

// lock takes the data directory for this process, which keeps it while it opens the volume again.
// Two servers in one directory, such as those of a volume and of a copy of it, would each take
// what the other one wrote for what itself had committed. If the filesystem has no locks, that
// is logged and the server goes on: what is there is checked as before. With the lock it takes requests of operators.
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
	p.takeRequests(opt)
	return nil
}

// unlock releases the data directory.
func (p *process) unlock() {
	if p.control != nil {
		p.control.Close() //nolint:errcheck // its requests have ended, or end with the process
	}
	p.control = nil
	if p.locked != nil {
		p.locked.Unlock() //nolint:errcheck // the lock ends with its descriptor
	}
	p.locked = nil
}

// holder returns the description of the server that holds a lock.
func holder(lock string) string {
	b, err := os.ReadFile(lock)
	if who := strings.TrimSpace(string(b)); err == nil && who != "" {
		return who
	}
	return "a process that has not said which it is"
}
