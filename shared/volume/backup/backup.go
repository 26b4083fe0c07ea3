// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/checkpoint"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// Options configure Run. The zero value is ready to use.
type Options struct {
	// Secrets copies the secrets of the volume as well.
	Secrets bool
	// Now and Version are written into the manifest.
	Now     time.Time
	Version string
	// Wait is that of volume.CommittedOptions.
	Wait time.Duration
	// Tell is called with each reason to wait or to begin again, Progress after each piece that was copied: how many of the
	// bytes of all files are done. Both may be nil.
	Tell     func(error)
	Progress func(done, total int64)
}

const (
	// rounds is how often the state is read anew because files were rotated or unbound while they were copied.
	rounds = 8
	// roundPause is the pause before that: who rotates a file moves it away first.
	roundPause = time.Second
)

// run is one call of Run.
type run struct {
	from, to vfs.FS
	opt      Options
	state    *volume.Committed
	// copies are the protected files that were copied so far.
	copies      map[cluster.FileName]protected
	files       []File // all others
	done, total int64
}

// Run takes a backup of a volume into an empty directory, and returns its manifest, which is then durable there. It only
// reads from the volume, and servers may run meanwhile. It returns the errors of volume.ReadCommitted, and one that wraps
// that of the filesystem if something cannot be read or written. A protected file that cannot be copied, or is not
// what the log says, ends no backup: it has a Problem in the manifest. After an error there is no manifest.
func Run(ctx context.Context, from, to vfs.FS, opt Options) (*Manifest, error) {
	if opt.Tell == nil {
		opt.Tell = func(error) {}
	}
	if opt.Progress == nil {
		opt.Progress = func(int64, int64) {}
	}
	if err := empty(to); err != nil {
		return nil, err
	}
	r := &run{from: from, to: to, opt: opt, copies: map[cluster.FileName]protected{}}
	if err := r.protectedFiles(ctx); err != nil {
		return nil, err
	}
	if err := r.otherFiles(ctx); err != nil {
		return nil, err
	}
	if err := r.table(); err != nil {
		return nil, err
	}
	return r.finish(ctx)
}

// empty returns an error unless a directory is empty.
func empty(to vfs.FS) error {
	entries, err := to.ReadDir(".")
	if err != nil {
		return err
	}
	for _, x := range entries {
		if x.Name != "lost+found" {
			return fmt.Errorf("the directory is not empty: it holds %q; name a new one for each backup", x.Name)
		}
	}
	return nil
}

// read reads the committed state.
func (r *run) read(ctx context.Context) (*volume.Committed, error) {
	c, err := volume.ReadCommitted(ctx, r.from, volume.CommittedOptions{Wait: r.opt.Wait, Tell: r.opt.Tell})
	if err == nil && r.state != nil && c.Cluster.ID != r.state.Cluster.ID {
		err = fmt.Errorf("the directory is now the volume of cluster %s, and was that of %s: it was replaced meanwhile", c.Cluster.ID, r.state.Cluster.ID)
	}
	return c, err
}

// protectedFiles copies the protected files of a state that is the same, as far as they are concerned, when all are copied.
func (r *run) protectedFiles(ctx context.Context) (err error) {
	if r.state, err = r.read(ctx); err != nil {
		return err
	}
	for round := 1; ; round++ {
		if err := r.room(); err != nil {
			return err
		}
		moved, err := r.copyProtected(ctx)
		if err != nil {
			return err
		}
		later, err := r.read(ctx)
		if err != nil {
			return err
		}
		changed := r.changed(later)
		if len(moved)+len(changed) == 0 || round == rounds && len(changed) == 0 {
			return nil
		}
		if round == rounds {
			return fmt.Errorf("%s and %d other files were rotated, unbound or quarantined again and again while they were copied: repeat the backup when that is over", changed[0], len(changed)-1)
		}
		r.opt.Tell(fmt.Errorf("protected files change their place (%s): reading the volume again", slices.Concat(moved, changed)[0]))
		if err := vfs.Pause(ctx, roundPause); err != nil {
			return err
		}
		if r.state, err = r.read(ctx); err != nil {
			return err
		}
	}
}

// changed returns the protected files that are another generation in a later state than in the one that is copied: what
// the log says about them does not hold any more.
func (r *run) changed(later *volume.Committed) (names []cluster.FileName) {
	for name, f := range r.state.Table.Files() {
		g, ok := later.Table.File(name)
		if !ok || g.Generation != f.Generation || g.Inode != f.Inode || g.Quarantined != f.Quarantined {
			names = append(names, name)
		}
	}
	return names
}

// room returns an error if the files do not fit into the directory of the backup.
func (r *run) room() error {
	r.total, r.done = 0, 0
	for _, f := range r.state.Table.Files() {
		r.total += f.End
	}
	need := r.total
	for _, p := range r.copies {
		need -= p.file.Bytes
	}
	if s, err := r.to.Space(); err == nil && s.Free < need {
		return fmt.Errorf("the protected files have %d bytes, and the directory has room for %d: name one on another disk", need, s.Free)
	}
	return nil
}

// otherFiles copies everything but protected files and the table.
func (r *run) otherFiles(ctx context.Context) error {
	names := []string{layout.ClusterName, layout.AuthorityName, layout.SigningPublicName}
	dirs := []string{layout.FilesDir, layout.AccessDir, layout.HistoryDir}
	if r.opt.Secrets {
		dirs = append(dirs, layout.SecretsDir)
	}
	for _, dir := range dirs {
		below, err := tree(r.from, dir)
		if err != nil {
			return err
		}
		names = append(names, below...)
	}
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, bound := r.state.Table.File(cluster.FileName(strings.TrimPrefix(name, layout.FilesDir+"/"))); bound && within(name, layout.FilesDir) || strings.HasSuffix(name, layout.TmpSuffix) || name == layout.SecretsDir+"/"+layout.SecretsClusterName {
			continue
		}
		f, err := r.copyWhole(name)
		if errors.Is(err, fs.ErrNotExist) && name != layout.ClusterName {
			continue // it is optional, or was removed meanwhile
		}
		if err != nil {
			return err
		}
		r.files = append(r.files, f)
	}
	return nil
}

// copyWhole copies a file as it is now.
func (r *run) copyWhole(name string) (_ File, err error) {
	f, err := r.from.Open(name, vfs.FlagRead)
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", name, err)
	}
	return r.write(name, io.NewSectionReader(f, 0, info.Size))
}

// write makes a file of the backup, and returns its entry for the manifest.
func (r *run) write(name string, content io.ReaderAt) (File, error) {
	n, sum, err := create(r.to, name, private(name), func(w io.Writer) error {
		return vfs.CopyPieces(w, content, func() error { return nil })
	})
	return File{Path: name, Bytes: n, SHA256: sum}, err
}

// table writes the copy of the table.
func (r *run) table() error {
	c := r.state
	s := checkpoint.Snapshot{Cluster: c.Cluster.ID, Epoch: c.Epoch, At: c.At, Table: c.Table}
	n, sum, err := create(r.to, checkpoint.CopyName, true, func(w io.Writer) error {
		b := bufio.NewWriterSize(w, vfs.PieceSize)
		return errors.Join(s.Export().Stream(b), b.Flush())
	})
	r.files = append(r.files, File{Path: checkpoint.CopyName, Bytes: n, SHA256: sum})
	return err
}

// finish makes all names durable, reads everything back, and then writes the manifest.
func (r *run) finish(ctx context.Context) (*Manifest, error) {
	m := newManifest(r.state, r.opt)
	for _, p := range r.copies {
		m.Files = append(m.Files, p.file)
	}
	m.Files = append(m.Files, r.files...)
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var err error
	if m.ClientTLS, err = volume.ClientTLSRequired(r.from); err != nil {
		return nil, err
	}
	if info, err := r.from.Lstat(layout.LoginDir); err == nil && info.Type == vfs.TypeDir {
		m.Logins = true
	}
	root, err := r.from.Lstat(".")
	if err != nil {
		return nil, err
	}
	m.Mode = uint32(root.Mode & 0o777)
	if err := syncDirs(r.to, "."); err != nil {
		return nil, err
	}
	report, err := check(ctx, r.to, m)
	if err != nil {
		return nil, err
	}
	if len(report.Damage) > 0 {
		return nil, fmt.Errorf("the backup does not read as it was written: %s", report.Damage[0])
	}
	// A crash here leaves a backup without a manifest, which nobody takes for a whole one.
	err = r.to.Replace(ManifestName, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(m)
	})
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ManifestName, err)
	}
	return m, nil
}

// within reports whether a path is below a directory.
func within(name, dir string) bool { return strings.HasPrefix(name, dir+"/") }

// tree returns the paths of the regular files below a directory, in order; none if it is missing.
func tree(fsys vfs.FS, dir string) (names []string, err error) {
	entries, err := fsys.ReadDir(dir)
	if err := vfs.IgnoreMissing(err); err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, x := range entries {
		name := path.Join(dir, x.Name)
		switch x.Type {
		case vfs.TypeDir:
			below, err := tree(fsys, name)
			if err != nil {
				return nil, err
			}
			names = append(names, below...)
		case vfs.TypeFile:
			names = append(names, name)
		}
	}
	return names, nil
}
