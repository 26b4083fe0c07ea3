// SPDX-License-Identifier: Apache-2.0

// Package offline answers reads from a volume alone, without any server, through the same
// front end: holders, waiters, and the history. It changes nothing on the volume.
package offline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// searchLimit bounds a search of the history. No other call waits for it.
const searchLimit = 5 * time.Minute

// Volume is a volume as it was when it was opened.
type Volume struct {
	pb.LockServiceClient
	fs   *osfs.FS
	note string
}

// Open reads the volume in a directory. The Volume answers GetLock, ListLocks and History; all
// other calls are refused. again is called with each error after which the volume is read again,
// because a server may write to it meanwhile.
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
	b := &backend{state: s, history: historydir.Dir{FS: fsys, Cluster: s.Cluster.ID}, age: age(s, time.Now())}
	return &Volume{LockServiceClient: grpcapi.Local(service.New(b, service.Options{SearchWait: searchLimit})), fs: fsys, note: note(dir, s, b.age)}, nil
}

// Close closes the volume.
func (v *Volume) Close() error { return v.fs.Close() }

// Note returns a message on the state that the answers are of: its LSN, its age, and what is
// not known.
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

// backend is the backend of the front end on a state. Methods that it lacks are never called.
type backend struct {
	serving.Backend
	state   *volume.State
	history historydir.Dir
	age     time.Duration
}

// Read calls f with the table.
func (b *backend) Read(_ context.Context, f func(serving.View)) (serving.Reading, error) {
	f(serving.View{Table: b.state.Table})
	return serving.Reading{Status: cluster.StatusOK, LSN: b.state.LSN, Epoch: b.state.Epoch, Local: true, Age: b.age}, nil
}

// Recent returns the ends of grants in the last part of the log.
func (b *backend) Recent() history.Recent { return b.state.Recent }

// SearchHistory searches the files of the history.
func (b *backend) SearchHistory(ctx context.Context, q history.Query, r history.Recent, upTo cluster.LSN) (historydir.Result, error) {
	return b.history.Search(ctx, q, r, upTo)
}

// Primary returns false: there is none.
func (b *backend) Primary() (m cluster.Member, epoch cluster.Epoch, ok bool) { return m, 0, false }

// Status returns a status without servers.
func (b *backend) Status() serving.ClusterStatus {
	return serving.ClusterStatus{ClusterID: b.state.Cluster.ID.String(), Epoch: b.state.Epoch}
}

// Timing returns the default.
func (b *backend) Timing() cluster.Timing { return cluster.DefaultTiming() }
