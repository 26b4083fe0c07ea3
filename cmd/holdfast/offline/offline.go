// SPDX-License-Identifier: Apache-2.0

// Package offline answers questions from a volume alone, without any server, through
// the same front end: who holds what, who waits, and what ended. It only reads.
package offline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/api"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// searchLimit bounds a search of the history. Nobody else waits for it.
const searchLimit = 5 * time.Minute

// Volume is a volume as it was when it was opened.
type Volume struct {
	pb.LockServiceServer
	fs   *osfs.FS
	note string
}

// Open reads the volume in a directory. Its questions are GetLock, ListLocks and
// History; all others are refused. What does not fit, and is read again, is told to again.
func Open(ctx context.Context, dir string, again func(error)) (*Volume, error) {
	fsys, err := osfs.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: is the share mounted?", err)
	}
	s, err := volume.ReadState(ctx, fsys, again)
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "--volume DIR", "--volume "+dir)
		return nil, errors.Join(fmt.Errorf("volume %s: %s", dir, text), fsys.Close())
	}
	b := &backend{state: s, age: age(s, time.Now())}
	return &Volume{LockServiceServer: api.Local(b, searchLimit), fs: fsys, note: note(dir, s, b.age)}, nil
}

// Close lets the volume go.
func (v *Volume) Close() error { return v.fs.Close() }

// Note says what the answers are of: which state, how old, and what they cannot know.
func (v *Volume) Note() string { return v.note }

func age(s *volume.State, now time.Time) time.Duration {
	if s.Written == 0 {
		return 0
	}
	return max(0, now.Sub(time.UnixMilli(s.Written)))
}

func note(dir string, s *volume.State, age time.Duration) string {
	lived := "nothing says when it was written"
	if s.Written != 0 {
		lived = fmt.Sprintf("last sign of life %v ago, by a primary's clock", age.Round(10*time.Millisecond))
	}
	text := fmt.Sprintf("read from %s, without a server: LSN %d of epoch %d, %s; what is left of leases is on no disk", dir, s.LSN, s.Epoch, lived)
	return strings.Join(append([]string{text}, s.Warnings...), "; ")
}

// backend shows a state to the front end. What it does not have is asked by nobody.
type backend struct {
	api.Backend
	state *volume.State
	age   time.Duration
}

// Read lets f look at the table.
func (b *backend) Read(_ context.Context, f func(primary.View)) (api.Reading, error) {
	f(primary.View{Table: b.state.Table})
	return api.Reading{Status: cluster.StatusOK, LSN: b.state.LSN, Epoch: b.state.Epoch, Local: true, Age: b.age}, nil
}

// Recent is what the end of the log ended.
func (b *backend) Recent() history.Recent { return b.state.Recent }

// SearchHistory looks through the files of the history.
func (b *backend) SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (volume.History, error) {
	return b.state.History(ctx, q, r, upTo)
}

// Primary is nobody.
func (b *backend) Primary() (m cluster.Member, epoch cluster.Epoch, ok bool) { return m, 0, false }

// Status knows no server.
func (b *backend) Status() api.ClusterStatus {
	return api.ClusterStatus{ClusterID: b.state.Cluster.ID.String(), Epoch: b.state.Epoch}
}

// Timing is the default.
func (b *backend) Timing() cluster.Timing { return cluster.DefaultTiming() }
