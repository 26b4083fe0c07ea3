// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Format and FeatureLevel are what this binary writes. A volume with a higher
// format is refused; so is one whose CLUSTER asks for a higher feature level, and
// so are segments of the log that a binary with a higher one wrote.
//
// Level 2 has clients with the mark of their cluster, records that answer what was so already,
// and records that remember what an ended binding used; level 3 has records that
// extend a lease (package locktable). Servers tell
// their level to each other, and a primary decides for the lowest of those that it reaches.
const (
	Format       = layout.Format
	FeatureLevel = 3
)

// Cluster is the content of CLUSTER.
type Cluster struct {
	ID           cluster.ID      `json:"cluster_id"`
	Format       int             `json:"format"`
	FeatureLevel uint32          `json:"feature_level"`
	Servers      cluster.Members `json:"servers"`
}

// ErrNoCluster says that the directory holds no volume. A mount point that is
// not mounted looks like this, so nothing is ever created on the way.
var ErrNoCluster = errors.New("no CLUSTER file here: not a Holdfast volume, or the filesystem is not mounted (use holdfast init for a new one)")

// ErrSameID says that another process on this filesystem runs with this ID.
var ErrSameID = errors.New("another process holds the guard of this server ID")

// ReadCluster reads and checks CLUSTER.
func ReadCluster(fsys vfs.FS) (Cluster, error) {
	b, err := vfs.ReadFile(fsys, layout.ClusterName, vfs.FlagRead)
	if errors.Is(err, fs.ErrNotExist) {
		return Cluster{}, ErrNoCluster
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("read CLUSTER: %w", err)
	}
	var c Cluster
	if err := json.Unmarshal(b, &c); err != nil {
		return Cluster{}, fmt.Errorf("%w: CLUSTER: %w", ErrDamaged, err)
	}
	switch {
	case c.Format != Format:
		return c, fmt.Errorf("CLUSTER has format %d, this binary knows %d: use a matching binary", c.Format, Format)
	case c.FeatureLevel > FeatureLevel:
		return c, fmt.Errorf("CLUSTER asks for feature level %d, this binary has %d: use a newer binary", c.FeatureLevel, FeatureLevel)
	}
	if err := c.Servers.Validate(); err != nil {
		return c, fmt.Errorf("%w: CLUSTER: %w", ErrDamaged, err)
	}
	return c, nil
}

// Options are what a Volume needs to know besides the filesystem.
type Options struct {
	// Server is who opens the volume.
	Server cluster.ServerID
	// Address is told to people in claim.json.
	Address string
	// Random is the source of nonces; crypto/rand.Reader in production.
	Random io.Reader
	// FirstSegment and Segment are the sizes of log segments in bytes; 0 means the default.
	FirstSegment, Segment int64
	// HistoryRate is that of history.NewLimiter.
	HistoryRate int
}

// Volume is one server's access to the shared directory.
type Volume struct {
	fs      vfs.FS
	opt     Options
	cluster Cluster
	guard   vfs.Lock
	calls   *calls                       // of a term; nil elsewhere
	space   *atomic.Pointer[spaceSample] // shared by all terms of a server; nil where nobody serves
	own     *ownFiles                    // likewise
}

// ownFiles are those that a server's process writes in place, over and over.
type ownFiles struct{ canary, process blockFile }

// spaceSample is how much room there was.
type spaceSample struct {
	vfs.Space
	at time.Time
}

// spaceAge is how old a sample may be to say anything.
const spaceAge = 5 * time.Second

// SampleSpace asks the filesystem how much room there is. It is called now and then, where
// it may hang without harm: Space tells what it brought.
func (v *Volume) SampleSpace() error {
	s, err := v.fs.Space()
	if err != nil {
		return fmt.Errorf("ask for free space: %w", err)
	}
	v.space.Store(&spaceSample{Space: s, at: time.Now()})
	return nil
}

// Space is how much room there was a moment ago. It never touches the volume; false says
// that it is not known.
func (v *Volume) Space() (vfs.Space, bool) {
	if v.space == nil {
		return vfs.Space{}, false
	}
	s := v.space.Load()
	if s == nil || time.Since(s.at) > spaceAge {
		return vfs.Space{}, false
	}
	return s.Space, true
}

// Open opens the volume for a server and takes the guard of its ID, which is
// best effort: safety never rests on it, because each claim has its own nonce.
func Open(fsys vfs.FS, opt Options) (*Volume, error) {
	c, err := ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	if _, ok := c.Servers.Find(opt.Server); !ok {
		return nil, fmt.Errorf("server %d is not one of this volume's servers %v", opt.Server, c.Servers.IDs())
	}
	if opt.FirstSegment == 0 {
		opt.FirstSegment = layout.FirstSegmentSize
	}
	if opt.Segment == 0 {
		opt.Segment = layout.SegmentSize
	}
	v := &Volume{fs: fsys, opt: opt, cluster: c, space: new(atomic.Pointer[spaceSample])}
	v.own = &ownFiles{
		canary:  blockFile{fs: fsys, name: canaryPath(opt.Server), check: v.CheckIdentity},
		process: blockFile{fs: fsys, name: processPath(opt.Server), check: v.CheckIdentity},
	}
	if v.guard, err = TakeGuard(fsys, opt.Server); err != nil {
		return nil, err
	}
	if err := v.own.canary.hold(); err != nil { // nobody writes it before this server is primary
		return nil, errors.Join(err, v.guard.Unlock())
	}
	return v, nil
}

// Offline returns the volume whose CLUSTER says c, for a tool that is no server: it holds no guard and
// claims nothing.
func Offline(fsys vfs.FS, c Cluster) *Volume { return &Volume{fs: fsys, cluster: c} }

// watched is the same volume for one term, which counts its calls.
func (v *Volume) watched() *Volume {
	w := *v
	w.calls = &calls{}
	w.fs = watchedFS{v.fs, w.calls}
	return &w
}

// TakeGuard locks the guard of a server's ID, which it makes if it is missing. Returns ErrSameID if another
// process holds it.
func TakeGuard(fsys vfs.FS, id cluster.ServerID) (vfs.Lock, error) {
	name := layout.ServersDir + "/" + layout.ServerPrefix(id) + "lock"
	f, err := fsys.Open(name, vfs.FlagCreate)
	switch {
	case err == nil:
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("create %s: %w", name, err)
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	l, err := fsys.TryLock(name)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("server %d: %w (%s)", id, ErrSameID, name)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return l, nil
}

// Close closes what this process wrote, and gives the guard back.
func (v *Volume) Close() error {
	return errors.Join(v.own.canary.close(), v.own.process.close(), v.guard.Unlock())
}

// Cluster is the content of CLUSTER as read by Open.
func (v *Volume) Cluster() Cluster { return v.cluster }

// Kind is the filesystem's.
func (v *Volume) Kind() vfs.Kind { return v.fs.Kind() }

// CheckIdentity reads CLUSTER again and compares: somebody may have unmounted,
// remounted or replaced the directory.
func (v *Volume) CheckIdentity() error {
	c, err := ReadCluster(v.fs)
	if err != nil {
		return err
	}
	if c.ID != v.cluster.ID {
		return fmt.Errorf("%w: CLUSTER names cluster %s, this server was started on %s", ErrDamaged, c.ID, v.cluster.ID)
	}
	return nil
}

// newNonce draws a nonce.
func (v *Volume) newNonce() (n epochdir.Nonce, err error) {
	if _, err := io.ReadFull(v.opt.Random, n[:]); err != nil {
		return n, fmt.Errorf("draw a nonce: %w", err)
	}
	return n, nil
}

func (v *Volume) logOptions(dir wal.Dir, e cluster.Epoch) wal.Options {
	return wal.Options{
		Dir:          dir,
		Cluster:      v.cluster.ID,
		Epoch:        e,
		FeatureLevel: FeatureLevel,
		SegmentSize:  v.opt.Segment,
	}
}

// ErrDamaged says that the volume contradicts itself: no server may begin a term
// until an operator has examined it. The wrapping error names the file.
var ErrDamaged = layout.ErrDamaged
