// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrExists means that the directory is a volume already.
var ErrExists = errors.New("this directory is a Holdfast volume already")

// Init makes an empty directory a volume for these servers, and returns its CLUSTER. One rename decides: that of a
// complete epoch 0, whose claim.json has the content of CLUSTER. Init never removes a directory of epochs/, and
// finishes an epoch 0 that exists. So an interrupted Init can be
// repeated, and of two Inits at the same time either both return the same volume or one fails. It returns
// ErrExists if the directory is a volume already.
func Init(_ context.Context, fsys vfs.FS, servers cluster.Members, random io.Reader) (Cluster, error) {
	return InitWith(fsys, servers, random, func(Cluster) error { return nil })
}

// InitWith is Init for a volume that is to have a certificate authority, access rules or a requirement of TLS from the
// beginning. It calls equip before CLUSTER is there, so that no server ever begins without what that makes. When Init is
// repeated, equip is called again with the same cluster ID.
func InitWith(fsys vfs.FS, servers cluster.Members, random io.Reader, equip func(Cluster) error) (Cluster, error) {
	return InitCell(fsys, FeatureLevel, servers, nil, random, equip)
}

// InitCell is InitWith for a volume whose cluster begins with this feature level, and which is a cell of a site that owns what own says; nil
// for one that is not. A restored volume begins with the level of its backup, so that the servers which used the old one can use it. CLUSTER says
// what the cell owns, so that it is decided by the same rename as the volume itself. A cell needs feature level 8.
func InitCell(fsys vfs.FS, level uint32, servers cluster.Members, own *cluster.Own, random io.Reader, equip func(Cluster) error) (Cluster, error) {
	c := Cluster{Format: Format, FeatureLevel: level, Servers: servers}
	c.bear(own)
	if err := errors.Join(servers.Validate(), c.checkCell()); err != nil {
		return c, err
	}
	if _, err := io.ReadFull(random, c.ID[:]); err != nil {
		return c, fmt.Errorf("draw a cluster ID: %w", err)
	}
	if err := refuseUsed(fsys); err != nil {
		return c, err
	}
	for _, dir := range []string{layout.EpochsDir, layout.FilesDir, layout.HistoryDir, layout.ServersDir} {
		if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return c, fmt.Errorf("init: %w", err)
		}
	}
	begun, err := beginEpochZero(fsys, c)
	if err != nil {
		return c, fmt.Errorf("init: epoch 0: %w", err)
	}
	if !slices.Equal(begun.Servers, servers) {
		return c, fmt.Errorf("init: another init began here with other servers, %v: repeat that one or empty the directory", begun.Servers)
	}
	if begun.CellSum != c.CellSum {
		return c, fmt.Errorf("init: another init began here for %s: repeat that one or empty the directory", begun.cellName())
	}
	if err := linkCanaries(fsys, c.ID, servers); err != nil {
		return c, fmt.Errorf("init: canaries: %w", err)
	}
	if err := RequireTLS(fsys); err != nil {
		return c, fmt.Errorf("init: %w", err)
	}
	if err := equip(begun); err != nil {
		return c, fmt.Errorf("init: %w", err)
	}
	if err := linkCluster(fsys, begun); err != nil {
		return c, fmt.Errorf("init: CLUSTER: %w", err)
	}
	removeUnfinished(fsys)
	return begun, nil
}

// refuseUsed returns an error unless the directory is empty or has only what an unfinished Init
// left: no CLUSTER, no epoch but 0, no other file.
func refuseUsed(fsys vfs.FS) error {
	if _, err := fsys.Lstat(layout.ClusterName); err == nil {
		return ErrExists
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("init: %w", err)
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	for _, x := range entries {
		switch x.Name {
		case layout.EpochsDir, layout.FilesDir, layout.HistoryDir, layout.ServersDir, layout.AccessDir:
		case "lost+found", layout.SecretsDir, layout.AuthorityName, layout.SigningPublicName, layout.LoginDir:
			continue
		case layout.ClusterName: // linked meanwhile
			return ErrExists
		default:
			return fmt.Errorf("init: the directory is not empty: it holds %q; give an empty one", x.Name)
		}
		inside, err := fsys.ReadDir(x.Name)
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
		for _, y := range inside {
			path := x.Name + "/" + y.Name
			if path == layout.EpochDir(0) || path == RulesPath(1) || x.Name == layout.AccessDir && strings.HasSuffix(y.Name, layout.TmpSuffix) || x.Name == layout.ServersDir && ofInit(fsys, y.Name) {
				continue
			}
			return fmt.Errorf("init: %w: no CLUSTER, but %s is there: this was a volume; restore CLUSTER from a backup", ErrDamaged, path)
		}
	}
	return nil
}

// ofInit reports whether an Init made the file in servers/ with this name: one that it builds, a canary that
// no primary has written, or one that requires TLS.
func ofInit(fsys vfs.FS, name string) bool {
	if strings.HasSuffix(name, "."+layout.CanarySuffix) {
		b, err := vfs.ReadBlockFile(fsys, layout.ServersDir+"/"+name, vfs.FlagDirect)
		return err == nil && vfs.AllZero(b)
	}
	return strings.HasPrefix(name, layout.InitPrefix) || name == layout.TLSRequiredName || name == layout.ClientTLSRequiredName
}

// beginEpochZero creates epoch 0 unless it exists, and returns the content of its claim.json.
func beginEpochZero(fsys vfs.FS, c Cluster) (Cluster, error) {
	begun, err := ReadEpochZero(fsys)
	if errors.Is(err, fs.ErrNotExist) {
		tmp := layout.ServersDir + "/" + layout.InitPrefix + c.ID.String() + layout.TmpSuffix
		if err := fillEpochZero(fsys, tmp, c); err != nil {
			return c, err
		}
		// Whatever the rename returns, and whichever Init was first: the epoch 0 that exists counts.
		renameErr := fsys.Rename(tmp, layout.EpochDir(0))
		if begun, err = ReadEpochZero(fsys); err != nil {
			return c, errors.Join(renameErr, err)
		}
	}
	if err != nil {
		return c, err
	}
	return begun, fsys.SyncDir(layout.EpochsDir)
}

// ReadEpochZero reads the claim.json of epoch 0, which has the content that CLUSTER was made with. It returns an
// error that wraps fs.ErrNotExist if it is missing, ErrDamaged if it cannot be decoded, ErrTooOld if this binary is too old for it.
func ReadEpochZero(fsys vfs.FS) (c Cluster, err error) {
	b, err := vfs.ReadFile(fsys, layout.EpochDir(0)+"/"+layout.ClaimName, vfs.FlagRead)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%w: %s of epoch 0: %w", ErrDamaged, layout.ClaimName, err)
	}
	if err := c.known(); err != nil {
		return c, err
	}
	return c, errors.Join(c.Servers.Validate(), c.checkCell())
}

// fillEpochZero creates, in a directory of this Init's own, a term that is empty,
// started and fenced, so that the first claimant takes over like every later one.
func fillEpochZero(fsys vfs.FS, tmp string, c Cluster) error {
	if err := fsys.Mkdir(tmp); err != nil {
		return err
	}
	fence, err := epochdir.CreateFence(fsys, tmp, epochdir.EncodeStart(epochdir.Start{}), epochdir.EncodeFlag(0, epochdir.Nonce{}))
	if err == nil {
		err = fence.Close()
	}
	if err != nil {
		return err
	}
	dir := &epochdir.Dir{FS: fsys, Path: tmp}
	next, err := dir.Create(wal.NextName, 4*vfs.BlockSize)
	if err != nil {
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	v := &Volume{fs: fsys, cluster: c, opt: Options{Segment: layout.SegmentSize}}
	log, err := wal.Start(v.logOptions(dir, 0, nil), wal.Position{}, 0)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := vfs.CreateFile(fsys, tmp+"/"+layout.ClaimName, append(content, '\n')); err != nil {
		return err
	}
	return fsys.SyncDir(tmp)
}

// linkCanaries creates the canary of each server, empty, before CLUSTER. So no server ever looks
// for a canary of this volume and finds no file: the cache of a network filesystem could
// repeat this answer after the first primary has written its canary. A link replaces no file, so an Init that
// was paused leaves the canaries of the volume as they are.
func linkCanaries(fsys vfs.FS, own cluster.ID, servers cluster.Members) error {
	for _, id := range servers.IDs() {
		tmp := layout.ServersDir + "/" + layout.InitPrefix + own.String() + "-" + layout.ServerPrefix(id) + layout.CanarySuffix + layout.TmpSuffix
		f, err := vfs.CreateZeros(fsys, tmp, vfs.BlockSize)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := fsys.Link(tmp, canaryPath(id)); err != nil {
			if _, statErr := fsys.Lstat(canaryPath(id)); statErr != nil {
				return err
			}
		}
		_ = fsys.Remove(tmp) // what stays only takes space
	}
	return nil
}

// linkCluster publishes CLUSTER, complete. If there is one already, it must be of this volume.
func linkCluster(fsys vfs.FS, c Cluster) error {
	for _, d := range []string{layout.ServersDir, layout.FilesDir, layout.HistoryDir, "."} {
		if err := fsys.SyncDir(d); err != nil {
			return err
		}
	}
	if err := fsys.Link(layout.EpochDir(0)+"/"+layout.ClaimName, layout.ClusterName); err != nil {
		if there, readErr := ReadCluster(fsys); readErr != nil || there.ID != c.ID {
			return err
		}
	}
	return fsys.SyncDir(".")
}

// removeUnfinished removes what other Inits built and did not use. It renames each directory
// first, so that a paused Init does not rename one that is removed in part to epoch 0.
// What cannot be removed only takes space.
func removeUnfinished(fsys vfs.FS) {
	entries, err := fsys.ReadDir(layout.ServersDir)
	if err != nil {
		return
	}
	for _, x := range entries {
		if !strings.HasPrefix(x.Name, layout.InitPrefix) {
			continue
		}
		name := layout.ServersDir + "/" + x.Name
		if x.Type == vfs.TypeFile { // a canary, which is used by its content
			_ = fsys.Remove(name)
			continue
		}
		trash := strings.TrimSuffix(name, layout.TmpSuffix) + layout.TrashSuffix
		if name == trash || fsys.Rename(name, trash) == nil {
			_ = vfs.RemoveTree(fsys, trash)
		}
	}
}
