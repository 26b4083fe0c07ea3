// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/inspect"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Report is the result of Check.
type Report struct {
	Manifest *Manifest `json:"manifest"`
	// Damage are sentences: where the backup is not as it was written.
	Damage []string `json:"damage"`
	// Problems are sentences on protected files that were not what the log said when they were copied. A restore
	// quarantines them.
	Problems []string `json:"problems"`
	// Bytes counts what was read, Locks and Clients what the table has.
	Bytes   int64 `json:"bytes"`
	Locks   int   `json:"locks"`
	Clients int   `json:"clients"`

	snapshot checkpoint.Snapshot
	level    uint32       // the feature level that CLUSTER names
	cell     *cluster.Own // what the volume owns as a cell of a site, nil if it is none
}

// Check reads everything in a backup, and compares it with the manifest, and the protected files with the
// table. It changes nothing. It returns the errors of ReadManifest, and volume.ErrTooOld if this binary is too old for the table; what else
// is wrong is in the report.
func Check(ctx context.Context, from vfs.FS) (*Report, error) {
	m, err := ReadManifest(from)
	if err != nil {
		return nil, err
	}
	return check(ctx, from, m)
}

func check(ctx context.Context, from vfs.FS, m *Manifest) (*Report, error) {
	r := &Report{Manifest: m, Damage: []string{}, Problems: []string{}}
	listed := map[string]bool{ManifestName: true}
	for _, f := range m.Files {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		listed[f.Path] = true
		if err := r.sum(from, f); err != nil {
			r.Damage = append(r.Damage, err.Error())
		}
	}
	there, err := tree(from, ".")
	if err != nil {
		return nil, err
	}
	for _, name := range there {
		if !listed[name] && !strings.HasPrefix(name, "lost+found/") {
			r.Damage = append(r.Damage, name+" is not in the manifest: it does not belong to the backup")
		}
	}
	if len(r.Damage) > 0 {
		return r, nil
	}
	if err := r.table(from); volume.TooOld(err) != nil {
		return nil, fmt.Errorf("%s: %w", checkpoint.CopyName, volume.TooOld(err))
	} else if err != nil {
		r.Damage = append(r.Damage, fmt.Sprintf("%s: %v", checkpoint.CopyName, err))
		return r, nil
	}
	return r, r.files(ctx, from)
}

// sum compares a file with its entry.
func (r *Report) sum(from vfs.FS, f File) (err error) {
	if f.SHA256 == "" {
		return nil // it was not copied
	}
	file, err := from.Open(f.Path, vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing", f.Path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(file, 0, info.Size))
	r.Bytes += n
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", f.Path, err)
	case n != f.Bytes:
		return fmt.Errorf("%s has %d bytes, the manifest says %d", f.Path, n, f.Bytes)
	case hex.EncodeToString(h.Sum(nil)) != f.SHA256:
		return fmt.Errorf("%s has other bytes than those of which the manifest has the sum", f.Path)
	}
	return nil
}

// table reads the copy of the table, and compares it with the manifest.
func (r *Report) table(from vfs.FS) error {
	b, err := vfs.ReadFile(from, checkpoint.CopyName, vfs.FlagRead)
	if err != nil {
		return err
	}
	if r.snapshot, err = checkpoint.ReadSnapshot(bytes.NewReader(b)); err != nil {
		return err
	}
	s, m := &r.snapshot, r.Manifest
	if s.Cluster != m.Cluster || s.Epoch != m.Epoch || s.At != m.Position() {
		return fmt.Errorf("it is of LSN %d, epoch %d, cluster %s; the manifest says LSN %d, epoch %d, cluster %s", s.At.LSN, s.Epoch, s.Cluster, m.LSN, m.Epoch, m.Cluster)
	}
	c, err := volume.ReadCluster(from)
	if err == nil && c.ID != m.Cluster {
		err = fmt.Errorf("%s names cluster %s, the manifest says %s", layout.ClusterName, c.ID, m.Cluster)
	}
	if err != nil {
		return err
	}
	r.level, r.cell = c.FeatureLevel, c.Cell
	if own := s.Table.Own(); own != nil {
		r.cell = own
	}
	if err := c.FitsCell(s.Table); err != nil {
		return err
	}
	r.Locks, r.Clients = s.Table.LockCount(), s.Table.ClientCount()
	return s.Table.Check()
}

// files compares the protected files with the table.
func (r *Report) files(ctx context.Context, from vfs.FS) error {
	entries := map[string]File{}
	for _, f := range r.Manifest.Files {
		entries[f.Path] = f
	}
	checks := inspect.NewFileChecks(from, r.snapshot.Table, nil, nil)
	for name, state := range r.snapshot.Table.Files() {
		path := volume.ProtectedPath(name)
		f, ok := entries[path]
		switch {
		case !ok || f.Generation != state.Generation || f.Lock != state.Lock:
			r.Damage = append(r.Damage, fmt.Sprintf("%s: the table has generation %d of it, for lock %s, and the manifest has not", path, state.Generation, state.Lock))
			continue
		case f.Problem != "":
			r.Problems = append(r.Problems, path+": "+f.Problem)
			continue
		case state.Quarantined:
			continue
		}
		problem, err := fits(ctx, checks[name])
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if problem != "" {
			r.Problems = append(r.Problems, path+": "+problem)
		}
	}
	return nil
}

// fits returns a sentence if a file is not what the table says, "" otherwise.
func fits(ctx context.Context, c *inspect.FileCheck) (string, error) {
	c.AnyInode, c.AtRest = true, true
	p, err := c.Run(ctx)
	if p == nil || err != nil {
		return "", err
	}
	return p.Text, nil
}
