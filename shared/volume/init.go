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
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrExists says that the directory is a volume already.
var ErrExists = errors.New("this directory is a Holdfast volume already")

// Init makes an empty directory a volume. What decides is one rename: of a
// complete epoch 0, whose claim.json holds what CLUSTER will say. Nothing that
// stands is ever removed by name, and whoever comes finishes the epoch 0 that is there. So an Init that
// was interrupted is repeated, and two at once agree on one volume, or one of them fails.
func Init(_ context.Context, fsys FS, servers cluster.Members, random io.Reader) (Cluster, error) {
	c := Cluster{Format: Format, FeatureLevel: FeatureLevel, Servers: servers}
	if err := servers.Validate(); err != nil {
		return c, err
	}
	if _, err := io.ReadFull(random, c.ID[:]); err != nil {
		return c, fmt.Errorf("draw a cluster ID: %w", err)
	}
	if err := refuseUsed(fsys); err != nil {
		return c, err
	}
	for _, dir := range []string{epochsDir, filesDir, historyDir, serversDir} {
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
	if err := linkCanaries(fsys, c.ID, servers); err != nil {
		return c, fmt.Errorf("init: canaries: %w", err)
	}
	if err := linkCluster(fsys, begun); err != nil {
		return c, fmt.Errorf("init: CLUSTER: %w", err)
	}
	removeUnfinished(fsys)
	return begun, nil
}

// What an Init builds lies at servers/init-<cluster ID>*.tmp until it is renamed or linked.
const initPrefix = "init-"

// refuseUsed refuses everything but an empty directory or what an Init that did
// not finish left: no CLUSTER, no reign but epoch 0, no file of anybody's.
func refuseUsed(fsys FS) error {
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
		case epochsDir, filesDir, historyDir, serversDir:
		case "lost+found":
			continue
		case clusterName: // linked meanwhile
			return ErrExists
		default:
			return fmt.Errorf("init: the directory is not empty: it holds %q; give an empty one", x.Name)
		}
		inside, err := fsys.ReadDir(x.Name)
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
		for _, y := range inside {
			if x.Name == epochsDir && x.Name+"/"+y.Name == epochDir(0) || x.Name == serversDir && ofInit(fsys, y.Name) {
				continue
			}
			return fmt.Errorf("init: %w: no CLUSTER, but %s/%s is there: this was a volume; restore CLUSTER from a backup", ErrDamaged, x.Name, y.Name)
		}
	}
	return nil
}

// ofInit reports whether a name in servers/ is of an Init: of what it builds, or a canary that
// no primary has written to.
func ofInit(fsys FS, name string) bool {
	if strings.HasSuffix(name, "."+canarySuffix) {
		b, err := readBlockFile(fsys, serversDir+"/"+name, FlagDirect)
		return err == nil && allZero(b)
	}
	return strings.HasPrefix(name, initPrefix)
}

// beginEpochZero makes the beginning, unless it is there, and returns what its claim.json says.
func beginEpochZero(fsys FS, c Cluster) (Cluster, error) {
	begun, err := readEpochZero(fsys)
	if errors.Is(err, fs.ErrNotExist) {
		tmp := serversDir + "/" + initPrefix + c.ID.String() + tmpSuffix
		if err := fillEpochZero(fsys, tmp, c); err != nil {
			return c, err
		}
		// Whatever is reported, and whoever was first: what is there counts.
		renameErr := fsys.Rename(tmp, epochDir(0))
		if begun, err = readEpochZero(fsys); err != nil {
			return c, errors.Join(renameErr, err)
		}
	}
	if err != nil {
		return c, err
	}
	return begun, fsys.SyncDir(epochsDir)
}

func readEpochZero(fsys FS) (c Cluster, err error) {
	b, err := readFile(fsys, epochDir(0)+"/"+claimName, FlagRead)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%w: %s of epoch 0: %w", ErrDamaged, claimName, err)
	}
	return c, c.Servers.Validate()
}

// fillEpochZero fills a directory of this Init's own with a reign that is empty,
// started and fenced, so that the first claimant takes over like every other.
func fillEpochZero(fsys FS, tmp string, c Cluster) error {
	if err := fsys.Mkdir(tmp); err != nil {
		return err
	}
	fence, err := prepareFence(fsys, tmp, encodeStart(start{}), encodeFlag(0, Nonce{}))
	if err == nil {
		err = fence.Close()
	}
	if err != nil {
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
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := createFile(fsys, tmp+"/"+claimName, append(content, '\n')); err != nil {
		return err
	}
	return fsys.SyncDir(tmp)
}

// prepareFence makes a fence with the given blocks; nil is zeros. Its two blocks are written, so
// that they have their room on a full disk, and the last one of the file; what lies between
// is a hole, for fences stay for ever.
func prepareFence(fsys FS, dir string, startBlock, flagBlock []byte) (File, error) {
	f, err := fsys.Open(dir+"/"+fenceName, FlagCreate|FlagDirect)
	if err != nil {
		return nil, err
	}
	zeros := AlignedBuffer(BlockSize)
	for _, x := range []struct {
		block []byte
		off   int64
	}{{flagBlock, 0}, {startBlock, fenceSpacing}, {nil, fenceSize - BlockSize}} {
		if x.block == nil {
			x.block = zeros
		}
		if err == nil {
			_, err = f.WriteAt(x.block, x.off)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// linkCanaries makes the canary of each server, empty, before there is a CLUSTER: nobody can look
// for a canary of this volume and find no name, which the cache of a network filesystem would
// repeat after the first primary has written its value. A link replaces nothing, so an Init that
// slept leaves the canaries of the volume as they are.
func linkCanaries(fsys FS, own ClusterID, servers cluster.Members) error {
	for _, id := range servers.IDs() {
		tmp := serversDir + "/" + initPrefix + own.String() + "-" + serverPrefix(id) + canarySuffix + tmpSuffix
		f, err := createZeros(fsys, tmp, BlockSize)
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

// linkCluster publishes CLUSTER whole. Where there is one, it must be this one.
func linkCluster(fsys FS, c Cluster) error {
	for _, d := range []string{serversDir, filesDir, historyDir, "."} {
		if err := fsys.SyncDir(d); err != nil {
			return err
		}
	}
	if err := fsys.Link(epochDir(0)+"/"+claimName, clusterName); err != nil {
		if there, readErr := ReadCluster(fsys); readErr != nil || there.ID != c.ID {
			return err
		}
	}
	return fsys.SyncDir(".")
}

// removeUnfinished removes what other Inits built and did not use. It is renamed
// away first, so that no Init that still sleeps renames half of it to epoch 0.
// What stays only takes space.
func removeUnfinished(fsys FS) {
	entries, err := fsys.ReadDir(serversDir)
	if err != nil {
		return
	}
	for _, x := range entries {
		if !strings.HasPrefix(x.Name, initPrefix) {
			continue
		}
		name := serversDir + "/" + x.Name
		if x.Type == TypeFile { // a canary, which is used by its content
			_ = fsys.Remove(name)
			continue
		}
		trash := strings.TrimSuffix(name, tmpSuffix) + trashSuffix
		if name == trash || fsys.Rename(name, trash) == nil {
			_ = removeTree(fsys, trash)
		}
	}
}
