// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
