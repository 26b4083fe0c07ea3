// SPDX-License-Identifier: Apache-2.0

// Package backup copies a volume beside its servers, at one position of its log, and makes a new volume from such a copy.
//
// A backup is a directory with
//
//	manifest.json    what the backup is of, and each file with its size and SHA-256; written last
//	replica.table    the table at LSN L, as a server keeps it in its data directory
//	CLUSTER          the cluster's ID and servers
//	files/           each protected file up to its end at L; other files as they were when they were copied
//	access/          the versions of the access rules
//	ca.crt, keys.json, history/
//	secrets/         only if Options.Secrets is set
//
// Its state is one that volume.ReadCommitted proves: it has everything that was acknowledged before the backup began, and
// nothing that the log never passed through. A protected file only grows while its binding lasts, so what it has up to its
// end at L stays there however much later it is copied. Appends up to L that a file may lack, because its writer
// follows the log, are written from the log. When all files are copied, the state is read again: a file that was
// unbound, rotated or quarantined meanwhile may have changed before it was copied, and then the later state is the one
// that is backed up.
//
// A backup without a manifest is unfinished. The manifest is written when everything else is durable and was read back.
package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// ManifestName is the name of the manifest in a backup.
const ManifestName = "manifest.json"

// Format is the format of the manifest. A backup with another one is refused.
const Format = 1

// Manifest says what a backup is of, and what belongs to it.
type Manifest struct {
	Format  int        `json:"format"`
	Cluster cluster.ID `json:"cluster_id"`
	// Epoch and LSN are the position of the log at which the table and the protected files were. Chain is the log's chain
	// value there, in hexadecimal.
	Epoch cluster.Epoch `json:"epoch"`
	LSN   cluster.LSN   `json:"lsn"`
	Chain string        `json:"chain"`
	// Taken is when the backup began, by the clock of the machine that took it, Version that machine's binary.
	Taken   time.Time       `json:"taken"`
	Version string          `json:"version"`
	Servers cluster.Members `json:"servers"`
	// Secrets is true if the backup has the secrets of the volume.
	Secrets bool `json:"secrets"`
	// ClientTLS is true if the volume refuses plain text of clients on other hosts, Logins if users log in by its directory.
	ClientTLS bool `json:"client_tls_required"`
	Logins    bool `json:"logins"`
	// Mode is the mode of the volume's directory, which says who may look into it.
	Mode uint32 `json:"mode"`
	// Unconfirmed is volume.Committed.Unconfirmed.
	Unconfirmed string `json:"unconfirmed,omitempty"`
	Files       []File `json:"files"`
}

// File is one file of a backup.
type File struct {
	// Path is relative to the backup, and for all but the manifest and the table the same as on the volume.
	Path string `json:"path"`
	// Bytes is the length of the copy, SHA256 its sum in hexadecimal.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Lock is the lock that a protected file belongs to, and Generation its generation; "" and 0 for any other file.
	Lock       cluster.LockName   `json:"lock,omitempty"`
	Generation cluster.Generation `json:"generation,omitempty"`
	// Quarantined says why the file was quarantined on the volume: the log does not say what it holds.
	Quarantined string `json:"quarantined,omitempty"`
	// Problem says why the copy of a protected file is not what the log says. The copy is missing if SHA256 is "".
	Problem string `json:"problem,omitempty"`
}

// Position returns the position of the log at which the backup was taken.
func (m *Manifest) Position() wal.Position {
	chain, _ := strconv.ParseUint(m.Chain, 16, 64) // ParseManifest has looked at it
	return wal.Position{LSN: m.LSN, Chain: wal.Chain(chain)}
}

// Problems returns the files whose copies are not what the log says.
func (m *Manifest) Problems() (all []File) {
	for _, f := range m.Files {
		if f.Problem != "" {
			all = append(all, f)
		}
	}
	return all
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() (sum int64) {
	for _, f := range m.Files {
		sum += f.Bytes
	}
	return sum
}

var (
	// ErrUnfinished means that a directory is no backup, or one that was interrupted.
	ErrUnfinished = errors.New("no " + ManifestName + " here: not a backup, or one that was interrupted; remove it and take another one")
	// ErrDamaged means that a backup is not as it was written.
	ErrDamaged = errors.New("the backup is damaged: use another one")
)

// ParseManifest decodes a manifest. It returns an error that wraps ErrDamaged unless everything in it makes sense.
func ParseManifest(b []byte) (*Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, ManifestName, err)
	}
	if m.Format > Format {
		return nil, fmt.Errorf("%w: %s has format %d, this binary knows %d: holdfast %s took the backup", volume.ErrTooOld, ManifestName, m.Format, Format, m.Version)
	}
	if m.Format != Format {
		return nil, fmt.Errorf("%s has format %d, this binary knows %d: use the version that took the backup, %s", ManifestName, m.Format, Format, m.Version)
	}
	if _, err := strconv.ParseUint(m.Chain, 16, 64); err != nil || len(m.Chain) != chainDigits {
		return nil, fmt.Errorf("%w: %s: the chain value %q is none", ErrDamaged, ManifestName, m.Chain)
	}
	if err := m.Servers.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, ManifestName, err)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		if !fs.ValidPath(f.Path) || f.Path == "." || f.Path == ManifestName || seen[f.Path] || f.Bytes < 0 {
			return nil, fmt.Errorf("%w: %s: it names %q, with %d bytes, twice or where no file can be", ErrDamaged, ManifestName, f.Path, f.Bytes)
		}
		seen[f.Path] = true
	}
	return &m, nil
}

// chainDigits is the length of Manifest.Chain.
const chainDigits = 16

// ReadManifest reads the manifest of a backup. It returns ErrUnfinished if there is none, and the errors of ParseManifest.
func ReadManifest(fsys vfs.FS) (*Manifest, error) {
	b, err := vfs.ReadFile(fsys, ManifestName, vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnfinished
	}
	if err != nil {
		return nil, err
	}
	return ParseManifest(b)
}

// newManifest returns the manifest of a backup of a state, without files.
func newManifest(c *volume.Committed, opt Options) *Manifest {
	return &Manifest{
		Format: Format, Cluster: c.Cluster.ID, Epoch: c.Epoch, LSN: c.At.LSN, Chain: fmt.Sprintf("%0*x", chainDigits, uint64(c.At.Chain)),
		Taken: opt.Now.UTC(), Version: opt.Version, Servers: c.Cluster.Servers, Secrets: opt.Secrets, Unconfirmed: c.Unconfirmed, Files: []File{},
	}
}

// private reports whether a file of a backup is for its owner only: secrets, rules, and what tells tokens.
func private(name string) bool {
	return within(name, layout.SecretsDir) || within(name, layout.AccessDir)
}
