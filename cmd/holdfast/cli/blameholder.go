// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/offline"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// blamed is what blame prints: the pieces of a file, and the grants under whose tokens they were appended, as far as the
// history has them. The index has no holders: it names a client, and most commands are a client for one append only.
type blamed struct {
	wire.BlameBody
	Grants []wire.PastBody `json:"grants"`
}

// blameGrants is how many grants of a lock are read to find the holders of the tokens that blame shows.
const blameGrants = 10_000

// addGrants adds the grants of the pieces, which were made under the tokens of one lock; "" = it is not known. Where the history
// cannot be read, the message says so: who wrote which bytes is known all the same.
func (b *blamed) addGrants(ctx context.Context, r reader, lock string) {
	tokens, first := map[uint64]bool{}, uint64(0)
	for _, p := range b.Pieces {
		if p.Indexed {
			tokens[p.Token] = true
			first = cmp.Or(min(first, p.LSN), p.LSN)
		}
	}
	if lock == "" || len(tokens) == 0 {
		return
	}
	// Each of the grants was live at its append, so it ended after the first of them.
	q := &pb.HistoryRequest{Target: &pb.HistoryRequest_Lock{Lock: lock}, AfterLsn: first}
	if len(tokens) == 1 {
		q.Token = b.Pieces[slices.IndexFunc(b.Pieces, func(p wire.BlamedPiece) bool { return p.Indexed })].Token
	}
	h, err := historyAll(ctx, r, q, blameGrants)
	if err != nil {
		b.noHistory(lock, err)
		return
	}
	for _, g := range h.Grants {
		if tokens[g.Token] {
			b.Grants = append(b.Grants, g)
		}
	}
}

// addGrantsOf is addGrants from the directory of a volume.
func (b *blamed) addGrantsOf(ctx context.Context, dir, lock string) {
	if lock == "" {
		return
	}
	v, err := offline.Open(ctx, dir, func(error) {})
	if err == nil {
		b.addGrants(ctx, volumeReader{v: v}, lock)
		err = v.Close()
	}
	if err != nil {
		b.noHistory(lock, err)
	}
}

// noHistory says why no holders are shown.
func (b *blamed) noHistory(lock string, err error) {
	text := fmt.Sprintf("the history of lock %s cannot be read, so who held it is not shown: %v", lock, err)
	if b.Message != "" {
		text = b.Message + "; " + text
	}
	b.Message = text
}

// who returns whom a piece is from: the holder of its token or, if that is not known, the identity of its client.
func (b *blamed) who(p *wire.BlamedPiece) string {
	i := slices.IndexFunc(b.Grants, func(g wire.PastBody) bool { return g.Token == p.Token })
	if i < 0 {
		return cmp.Or(p.Identity, "-")
	}
	return b.Grants[i].Person()
}

// lockOf asks for the lock of a protected file; "" if it has none, or if that cannot be found out.
func lockOf(ctx context.Context, c *remote.Caller, file string) string {
	r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListFilesResponse, error) {
		return s.ListFiles(ctx, &pb.ListFilesRequest{Prefix: file, Limit: 1}) // the shortest name is the first
	})
	if err != nil || len(r.GetFiles()) == 0 || r.GetFiles()[0].GetName() != file {
		return ""
	}
	return r.GetFiles()[0].GetLock()
}
