// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/recovery"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// RestoreOptions are what an operator knows. Random has to be set; the other fields may be zero.
type RestoreOptions struct {
	// Servers are those of the new volume; nil means the members in the backup.
	Servers cluster.Members
	// Known are states of the backup's cluster that servers kept. Only their positions count: tokens, LSNs and epochs of the
	// new volume are above them.
	Known []recovery.Copy
	// SeenLSN and SeenEpoch are those of recovery.Options.
	SeenLSN   cluster.LSN
	SeenEpoch cluster.Epoch
	// Begin is called before anything is copied to the new volume. It may be nil.
	Begin func(volume.Cluster) error
	// Equip is called before the new volume has its CLUSTER, after what the backup has was copied. It may be nil.
	Equip func(*Manifest, volume.Cluster) error
	// Random is the source of the new cluster's ID.
	Random io.Reader
	// FirstSegment is that of recovery.Options.
	FirstSegment int64
}

// Plan says what a restore does or has done.
type Plan struct {
	Backup *Manifest `json:"backup"`
	// Cluster is the ID of the new cluster, zeros as long as the plan is not done.
	Cluster cluster.ID      `json:"cluster_id"`
	Servers cluster.Members `json:"servers"`
	// LSN is where the log of the new volume begins: all its tokens are above it.
	LSN cluster.LSN `json:"lsn"`
	// Held counts the locks that stay held for one lease, Files the protected files that are kept, Quarantined those
	// that are not.
	Held        int                    `json:"held"`
	Files       int                    `json:"files"`
	Quarantined []recovery.PlannedFile `json:"quarantined"`
	Notes       []string               `json:"notes"`
	Done        bool                   `json:"done"`
}

// NewPlan checks a backup, and says what Restore would make of it. It only reads. It returns the errors of
// ReadManifest, and one that wraps ErrDamaged if Check finds damage.
func NewPlan(ctx context.Context, from vfs.FS, opt RestoreOptions) (*Plan, error) {
	p, _, err := plan(ctx, from, opt)
	return p, err
}

func plan(ctx context.Context, from vfs.FS, opt RestoreOptions) (*Plan, *Report, error) {
	r, err := Check(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	m := r.Manifest
	if len(r.Damage) > 0 {
		return nil, nil, fmt.Errorf("%w: %s", ErrDamaged, r.Damage[0])
	}
	for _, k := range opt.Known {
		if k.Cluster != m.Cluster {
			return nil, nil, fmt.Errorf("%s is of cluster %s, the backup of %s: name the data directories of its servers", k.Name, k.Cluster, m.Cluster)
		}
	}
	p := &Plan{Backup: m, Servers: opt.Servers, Quarantined: []recovery.PlannedFile{}, Notes: []string{
		"the volume is one of a new cluster: move the data directories of the old servers away, and restart programs that use the Go library",
		fmt.Sprintf("what was acknowledged after LSN %d is not in the backup: before you start servers, wait for the longest lease that clients use", m.LSN),
	}}
	if p.Servers == nil {
		// Who only joined may be no server at all.
		p.Servers = r.snapshot.Table.MembersOr(m.Servers).Servers.Voters()
	}
	if !m.Secrets {
		p.Notes = append(p.Notes, "the backup has no secrets: the new volume has keys of its own, so give clients a new join string; tickets of the old one are refused")
	}
	seen := max(m.LSN, opt.SeenLSN)
	for _, k := range opt.Known {
		seen = max(seen, k.At.LSN)
	}
	p.LSN = recovery.After(seen)
	for l := range r.snapshot.Table.Locks("", "") {
		if l.Grant.Token != 0 {
			p.Held++
		}
	}
	for _, f := range m.Files {
		switch {
		case f.Lock == "":
		case f.Quarantined != "" || f.Problem != "":
			p.Quarantined = append(p.Quarantined, recovery.PlannedFile{Path: f.Path, Fate: recovery.FateQuarantined, Reason: f.Quarantined + f.Problem})
		default:
			p.Files++
		}
	}
	return p, r, nil
}

// Restore makes an empty directory a volume with the state of a backup, and returns the plan that it carried out. The volume has the
// feature level that the old one had. The
// directory must be one that no server uses, and that gets the name of the volume afterwards: until Restore returns, a
// server that starts there would give out tokens from 1 on.
//
// The new volume has another cluster ID, so that neither a server of the old one nor its data is taken for a part of it. Its
// state is what a recovery makes of a table that was kept elsewhere: see package recovery. All tokens, LSNs and epochs are
// above those of the backup, of RestoreOptions.Known, and SeenLSN and SeenEpoch.
func Restore(ctx context.Context, from, to vfs.FS, opt RestoreOptions) (*Plan, error) {
	p, r, err := plan(ctx, from, opt)
	if err != nil {
		return nil, err
	}
	c, err := volume.InitCell(to, r.level, p.Servers, r.cell, opt.Random, func(c volume.Cluster) error {
		if opt.Begin != nil {
			if err := opt.Begin(c); err != nil {
				return err
			}
		}
		if err := r.Manifest.putBack(ctx, from, to); err != nil {
			return err
		}
		if opt.Equip == nil {
			return nil
		}
		return opt.Equip(r.Manifest, c)
	})
	if err != nil {
		return p, err
	}
	known := []recovery.Copy{{Name: "the backup", Snapshot: r.snapshot}}
	for _, k := range opt.Known {
		k.Table, k.Pending = nil, nil // the protected files are those of the backup
		known = append(known, k)
	}
	done, err := recovery.Run(ctx, to, recovery.Options{
		Copies: known, SeenLSN: opt.SeenLSN, SeenEpoch: opt.SeenEpoch, AcceptLoss: true, Random: opt.Random, FirstSegment: opt.FirstSegment,
	})
	if err != nil {
		return p, err
	}
	p.Cluster, p.LSN, p.Held, p.Files, p.Quarantined = c.ID, done.LSN, done.Held, 0, p.Quarantined[:0]
	for _, f := range done.Files {
		if f.Fate != recovery.FateKept {
			p.Quarantined = append(p.Quarantined, f)
		} else {
			p.Files++
		}
	}
	found, err := fsck.Run(ctx, to, fsck.Options{})
	if err != nil {
		return p, err
	}
	for _, f := range found.Findings {
		if f.Severity == fsck.SeverityError {
			return p, fmt.Errorf("fsck finds errors on the new volume: %s: %s", f.Path, f.Problem)
		}
	}
	p.Done = true
	return p, nil
}

// putBack copies what the backup has to the new volume: files, access rules, and secrets. The history is of another
// cluster.
func (m *Manifest) putBack(ctx context.Context, from, to vfs.FS) error {
	for _, f := range m.Files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if f.SHA256 == "" || !slices.ContainsFunc([]string{layout.FilesDir, layout.AccessDir, layout.SecretsDir}, func(d string) bool { return within(f.Path, d) }) {
			continue
		}
		if err := m.putBackFile(from, to, f); err != nil {
			return err
		}
	}
	for _, dir := range []string{layout.FilesDir, layout.AccessDir, layout.SecretsDir} {
		if err := syncDirs(to, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return to.SyncDir(path.Dir(layout.ClusterName))
}

func (m *Manifest) putBackFile(from, to vfs.FS, f File) (err error) {
	file, err := from.Open(f.Path, vfs.FlagRead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	n, sum, err := create(to, f.Path, private(f.Path), func(w io.Writer) error {
		return vfs.CopyPieces(w, file, func() error { return nil })
	})
	if err == nil && (n != f.Bytes || sum != f.SHA256) {
		err = fmt.Errorf("%w: %s changed while it was read", ErrDamaged, f.Path)
	}
	return err
}
