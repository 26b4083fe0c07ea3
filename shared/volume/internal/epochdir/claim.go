// SPDX-License-Identifier: Apache-2.0

package epochdir

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Nonce identifies one prepared claim.
type Nonce [16]byte

// Claim is the content of claim.json.
type Claim struct {
	Cluster  cluster.ID       `json:"cluster_id"`
	Server   cluster.ServerID `json:"server"` // 0 in an epoch that a recovery made
	Nonce    string           `json:"nonce"`  // in hexadecimal
	Address  string           `json:"address"`
	Prepared time.Time        `json:"prepared"`
	// Recovered is set in an epoch that an operator's recovery made, nil in one that a server claimed.
	Recovered *Recovered `json:"recovered,omitempty"`
}

// Recovered is the part of claim.json that a recovery writes about the epoch that it made.
type Recovered struct {
	// Follows is the newest epoch that the recovery saw. The numbers between it and the new epoch are free, except for
	// those that servers claimed while the recovery was paused.
	Follows cluster.Epoch `json:"follows"`
	// Source describes the state that the recovery used, End is its last LSN. The new log begins after LSN.
	Source string      `json:"source"`
	End    cluster.LSN `json:"end_lsn"`
	LSN    cluster.LSN `json:"lsn"`
	// Complete is true if no acknowledged operation can be missing from the source.
	Complete bool `json:"complete"`
	// SeenLSN and SeenEpoch are the highest that the recovery knew of. A repeated recovery uses them too.
	SeenLSN   cluster.LSN   `json:"seen_lsn"`
	SeenEpoch cluster.Epoch `json:"seen_epoch"`
}

// HoldsNonce reports whether the claim.json of epoch e can be read and carries the nonce.
func HoldsNonce(fsys vfs.FS, e cluster.Epoch, nonce Nonce) bool {
	b, err := vfs.ReadFile(fsys, layout.EpochDir(e)+"/"+layout.ClaimName, vfs.FlagRead)
	if err != nil {
		return false
	}
	var c Claim
	return json.Unmarshal(b, &c) == nil && c.Nonce == hex.EncodeToString(nonce[:])
}

// ReadRecovered reads what a recovery wrote into the claim.json of epoch e. It returns nil if a
// server claimed the epoch.
func ReadRecovered(fsys vfs.FS, e cluster.Epoch) (*Recovered, error) {
	name := layout.EpochDir(e) + "/" + layout.ClaimName
	b, err := vfs.ReadFile(fsys, name, vfs.FlagRead)
	if err != nil {
		return nil, err
	}
	var c Claim
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", layout.ErrDamaged, name, err)
	}
	return c.Recovered, nil
}
