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
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/epochdir"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/wal"
)

// Format is what this binary writes, FeatureLevel the highest level that it knows. It refuses a volume with another
// format, a volume whose CLUSTER asks for a higher feature level, and a log of a cluster that was raised to one:
// by the headers of its segments, by a KindLevel record, or by the level in a checkpoint. What it writes itself
// may need the level of the cluster (Cluster.Level), and no higher one.
//
// Level 2 adds client IDs with a mark of their cluster, receipts for requests that changed nothing,
// records that remember which inode an ended binding used; level 3 adds records that extend a lease
// (package locktable); level 4 adds the record that raises the level; level 5 that of the list of servers; level 6 marks of locks; level 8 the record by which a
// volume is a cell of a site. The identities of clients need no level: older binaries skip them, and decide without them
// as they always did. Servers tell each other
// the level that they know, and a primary decides at the lowest level of the servers that it reaches, or at that of the cluster if this is lower.
const (
	Format       = layout.Format
	FeatureLevel = locktable.MaxLevel
)

// Cluster is the content of CLUSTER.
type Cluster struct {
	ID           cluster.ID      `json:"cluster_id"`
	Format       int             `json:"format"`
	FeatureLevel uint32          `json:"feature_level"`
	Servers      cluster.Members `json:"servers"`
	// Cell is what a volume was made to own that is a cell of a site, nil for one that is not. Its first term logs it: see cell.go.
	Cell *cluster.Own `json:"cell,omitempty"`
	// CellSum is the CRC-32C of the text of Cell, in hexadecimal: until it is logged, nothing else says which names the cell owns.
	CellSum string `json:"cell_crc32c,omitempty"`
}

// Level returns the feature level of the cluster when its log has made table t: that which the last KindLevel gave it, or
// that with which it began. t may be nil.
func (c Cluster) Level(t *locktable.Table) uint32 {
	n := uint32(0)
	if t != nil {
		n, _ = t.Level()
	}
	return max(n, c.FeatureLevel, locktable.BaseLevel)
}

// ErrNoCluster means that the directory holds no volume. A mount point without its
// filesystem looks like this too, so only Init ever creates a volume.
var ErrNoCluster = errors.New("no CLUSTER file here: not a Holdfast volume, or the filesystem is not mounted (use holdfast init for a new one)")

// ErrSameID means that another process on this filesystem runs with the same server ID.
var ErrSameID = errors.New("another process holds the guard of this server ID")

// ReadCluster reads and checks CLUSTER. It returns ErrNoCluster if there is none, an error that wraps
// ErrDamaged if its content is invalid, and ErrTooOld if this binary is too old for it.
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
	if err := c.known(); err != nil {
		return c, err
	}
	if err := c.Servers.Validate(); err != nil {
		return c, fmt.Errorf("%w: CLUSTER: %w", ErrDamaged, err)
	}
	if err := c.checkCell(); err != nil {
		return c, fmt.Errorf("%w: CLUSTER: %w", ErrDamaged, err)
	}
	return c, nil
}

// Options configure a Volume.
type Options struct {
	// Server is the ID of the server that opens the volume.
	Server cluster.ServerID
	// Members is the list of servers, with this one, as the caller read it from MEMBERS; nil: Open reads it.
	Members *cluster.Membership
	// Address is written into claim.json, for people.
	Address string
	// Random is the source of nonces; crypto/rand.Reader in production.
	Random io.Reader
	// FirstSegment and Segment are the sizes of log segments in bytes; 0 means the default.
	FirstSegment, Segment int64
	// HistoryRate is the rate of history.NewLimiter.
	HistoryRate int
	// Staleness is how old what is read past the caches may be. If it is not 0, a claimant confirms what
	// it found (Term.ConfirmSource), and neither writes nor follows fencedNotes.
	Staleness time.Duration
}

// Volume is one server's access to the shared directory.
type Volume struct {
	fs      vfs.FS
	opt     Options
	cluster Cluster
	members cluster.Membership // as MEMBERS showed it when the volume was opened
	guard   vfs.Lock
	calls   *pendingCalls                // of a term; nil in a Volume that belongs to no term
	space   *atomic.Pointer[spaceSample] // shared by all terms of a server; nil in offline tools
	own     *ownFiles                    // likewise
}

// ownFiles are the files that a server's process writes in place, again and again.
type ownFiles struct{ canary, process blockFile }

// spaceSample is the free space at one time.
type spaceSample struct {
	vfs.Space
	at time.Time
}

// spaceAge is the age up to which a sample counts.
const spaceAge = 5 * time.Second

// SampleSpace asks the filesystem for its free space, which Space then returns. It may hang, so it
// is called from a goroutine that nothing waits for.
func (v *Volume) SampleSpace() error {
	s, err := v.fs.Space()
	if err != nil {
		return fmt.Errorf("ask for free space: %w", err)
	}
	v.space.Store(&spaceSample{Space: s, at: time.Now()})
	return nil
}

// Space returns the newest sample of the free space, without touching the volume. It returns false if there is
// none that is at most spaceAge old.
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

// Open opens the volume for a server and locks the guard of its ID. It returns the errors of ReadCluster, and
// one that wraps cluster.ErrRemoved or cluster.ErrNoMember if the server is not listed, one that wraps ErrSameID if another process holds the guard. The guard is best effort: safety does not depend
// on it, because each claim has its own nonce.
func Open(fsys vfs.FS, opt Options) (*Volume, error) {
	c, err := ReadCluster(fsys)
	if err != nil {
		return nil, err
	}
	if opt.Members == nil {
		list, err := openedBy(fsys, c, opt.Server)
		if err != nil {
			return nil, err
		}
		opt.Members = &list
	}
	if opt.FirstSegment == 0 {
		opt.FirstSegment = layout.FirstSegmentSize
	}
	if opt.Segment == 0 {
		opt.Segment = layout.SegmentSize
	}
	v := &Volume{fs: fsys, opt: opt, cluster: c, members: *opt.Members, space: new(atomic.Pointer[spaceSample])}
	v.own = &ownFiles{
		canary:  blockFile{fs: fsys, name: canaryPath(opt.Server), check: v.CheckIdentity},
		process: blockFile{fs: fsys, name: processPath(opt.Server), check: v.CheckIdentity},
	}
	if v.guard, err = TakeGuard(fsys, opt.Server); err != nil {
		return nil, err
	}
	if err := v.own.canary.openExisting(); err != nil { // before this server is primary it only holds the file open
		return nil, errors.Join(err, v.guard.Unlock())
	}
	return v, nil
}

// Offline returns the volume with the CLUSTER c for an offline tool. It holds no guard and must not claim.
func Offline(fsys vfs.FS, c Cluster) *Volume { return &Volume{fs: fsys, cluster: c} }

// tracked returns a copy of v for one term, which tracks its pending calls.
func (v *Volume) tracked() *Volume {
	w := *v
	w.calls = &pendingCalls{}
	w.fs = trackedFS{v.fs, w.calls}
	return &w
}

// Guards are those of several servers, which are held together.
type Guards []vfs.Lock

// Release releases them all.
func (g Guards) Release() error {
	var errs []error
	for _, l := range g {
		errs = append(errs, l.Unlock())
	}
	return errors.Join(errs...)
}

// TakeGuard locks the guard of a server ID, and creates the file if it is missing. It returns an error that wraps
// ErrSameID if another process holds the guard.
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

// Close closes the canary and the sign of life, and unlocks the guard.
func (v *Volume) Close() error {
	return errors.Join(v.own.canary.close(), v.own.process.close(), v.guard.Unlock())
}

// Cluster returns the content of CLUSTER as Open read it.
func (v *Volume) Cluster() Cluster { return v.cluster }

// Kind returns the kind of the filesystem.
func (v *Volume) Kind() vfs.Kind { return v.fs.Kind() }

// CheckIdentity reads CLUSTER again and compares its ID: the directory may have been unmounted,
// remounted or replaced. It returns the errors of ReadCluster, and one that wraps ErrDamaged for another ID.
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

// newNonce returns a random nonce.
func (v *Volume) newNonce() (n epochdir.Nonce, err error) {
	if _, err := io.ReadFull(v.opt.Random, n[:]); err != nil {
		return n, fmt.Errorf("draw a nonce: %w", err)
	}
	return n, nil
}

// logOptions returns the options of a log that follows table t; nil is the empty one. The headers of its segments name the
// level that the cluster has now: if that is raised later, a record in the log says so.
func (v *Volume) logOptions(dir wal.Dir, e cluster.Epoch, t *locktable.Table) wal.Options {
	return wal.Options{
		Dir:          dir,
		Cluster:      v.cluster.ID,
		Epoch:        e,
		FeatureLevel: v.cluster.Level(t),
		SegmentSize:  v.opt.Segment,
	}
}

// ErrDamaged means that the volume contradicts itself: no server may begin a term
// until an operator has examined it. The wrapping error names the file.
var ErrDamaged = layout.ErrDamaged
