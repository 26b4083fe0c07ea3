// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// knownName is where a server keeps what it knows, in its data directory.
const knownName = "known.json"

// Known is what a server knows to be committed, kept outside the volume: a volume that
// lacks it was rolled back, for example to a backup.
type Known struct {
	Cluster cluster.ID `json:"cluster_id"`
	// LSN is the highest that this server committed itself, or found committed on the volume;
	// Epoch that of its newest term, or of one that it found there.
	LSN   cluster.LSN   `json:"lsn"`
	Epoch cluster.Epoch `json:"epoch"`
}

// ReadKnown reads what an earlier process wrote into dir. It returns the zero Known if there is
// nothing.
func ReadKnown(dir string) (k Known, err error) {
	name := filepath.Join(dir, knownName)
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Known{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return Known{}, fmt.Errorf("read what this server knew: %w; if the volume is the right one, remove %s", err, name)
	}
	return k, nil
}

// Write writes k into dir durably, in place of an earlier one.
func (k Known) Write(dir string) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, knownName), append(b, '\n'), 0o600)
}
