// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrExists says that the directory is a volume already.
var ErrExists = errors.New("this directory is a Holdfast volume already")

// Init makes an empty directory a volume. CLUSTER is linked last, so a crash
// leaves a directory that is no volume yet; calling Init again finishes it. Of
// two Inits at once one wins and the other fails.
func Init(ctx context.Context, fsys FS, servers cluster.Members, random io.Reader) (Cluster, error) {
	c := Cluster{Format: Format, FeatureLevel: FeatureLevel, Servers: servers}
	if err := servers.Validate(); err != nil {
		return c, err
	}
	if _, err := io.ReadFull(random, c.ID[:]); err != nil {
		return c, fmt.Errorf("draw a cluster ID: %w", err)
	}
	if err := clearUnfinished(fsys); err != nil {
		return c, err
	}
	for _, dir := range []string{epochsDir, filesDir, historyDir, serversDir} {
		if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return c, fmt.Errorf("init: %w", err)
		}
	}
	if err := initEpochZero(ctx, fsys, c); err != nil {
		return c, fmt.Errorf("init: epoch 0: %w", err)
	}
	if err := linkCluster(fsys, c); err != nil {
		return c, fmt.Errorf("init: CLUSTER: %w", err)
	}
	return c, nil
}

// clearUnfinished refuses everything but an empty directory or what an Init
// that did not finish left: no CLUSTER, no reign but epoch 0, no file of anybody's.
func clearUnfinished(fsys FS) error {
	if _, err := fsys.Lstat(clusterName); err == nil {
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
		case epochsDir, filesDir, historyDir, serversDir, "lost+found":
		default:
			return fmt.Errorf("init: the directory is not empty: it holds %q; give an empty one", x.Name)
		}
		if x.Name == "lost+found" {
			continue
		}
		inside, err := fsys.ReadDir(x.Name)
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
		for _, y := range inside {
			if x.Name == epochsDir && y.Name == fmt.Sprintf("%010d", 0) || x.Name == serversDir && y.Name == initTmp {
				continue
			}
			return fmt.Errorf("init: %w: no CLUSTER, but %s/%s is there: this was a volume; restore CLUSTER from a backup", ErrDamaged, x.Name, y.Name)
		}
	}
	for _, dir := range []string{epochDir(0), serversDir + "/" + initTmp} {
		if err := removeTree(fsys, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("init: remove what an unfinished init left: %w", err)
		}
	}
	return nil
}

const initTmp = "init" + tmpSuffix

// initEpochZero makes the beginning: a reign that is empty, started and fenced,
// so that the first claimant takes over like every other.
func initEpochZero(ctx context.Context, fsys FS, c Cluster) error {
	tmp := serversDir + "/" + initTmp
	if err := fsys.Mkdir(tmp); err != nil {
		return err
	}
	if err := prepareFence(fsys, tmp, encodeStart(start{}), encodeFlag(0, Nonce{})); err != nil {
		return err
	}
	dir := &dir{fs: fsys, path: tmp}
	next, err := dir.Create(wal.NextName, 4*BlockSize)
	if err != nil {
		return err
	}
	if err := next.Close(); err != nil {
		return err
	}
	v := &Volume{fs: fsys, cluster: c, opt: Options{Segment: SegmentSize}}
	log, err := wal.Start(v.logOptions(dir, 0), wal.Position{}, 0)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	if err := createFile(fsys, tmp+"/"+claimName, []byte("{}\n")); err != nil {
		return err
	}
	if err := fsys.SyncDir(tmp); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, epochDir(0)); err != nil {
		return err
	}
	return fsys.SyncDir(epochsDir)
}

// prepareFence makes a fence with the given blocks; nil is zeros.
func prepareFence(fsys FS, dir string, startBlock, flagBlock []byte) error {
	f, err := createZeros(fsys, dir+"/"+fenceName, fenceSize)
	if err != nil {
		return err
	}
	if startBlock != nil {
		_, err = f.WriteAt(startBlock, fenceSpacing)
	}
	if err == nil && flagBlock != nil {
		_, err = f.WriteAt(flagBlock, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// linkCluster publishes CLUSTER whole, and fails where there is one.
func linkCluster(fsys FS, c Cluster) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	tmp := serversDir + "/cluster-" + c.ID.String() + tmpSuffix
	if err := createFile(fsys, tmp, append(b, '\n')); err != nil {
		return err
	}
	for _, d := range []string{serversDir, filesDir, historyDir, "."} {
		if err := fsys.SyncDir(d); err != nil {
			return err
		}
	}
	if err := fsys.Link(tmp, clusterName); err != nil {
		return err
	}
	if err := fsys.SyncDir("."); err != nil {
		return err
	}
	return fsys.Remove(tmp)
}
