// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A command that names a lock or a file asks the servers of the cell that has it, whichever cell the endpoints are of. From then on
// app.cell is that cell, also for what asks beside the command.

// atName runs f with a Caller of the cell that has a name; SIGINT and SIGTERM cancel its context.
func (a *app) atName(ctx context.Context, name string, f func(context.Context, *remote.Caller) error) error {
	return a.atCells(ctx, of(name), f)
}

// requestLockFlag adds the flag by which a request is looked for in the right cell of a site.
func requestLockFlag(c *cobra.Command, lock *string) {
	c.Flags().StringVar(lock, "lock", "", "the lock or the file that the request named, to ask its cell of a site")
}

// atRequest runs f with a Caller of the cell that has a lock. Without one it refuses to ask one of several cells: those that do not know the
// request say that it was not executed.
func (a *app) atRequest(ctx context.Context, lock string, f func(context.Context, *remote.Caller) error) error {
	if lock == "" {
		return a.atOneCell(ctx, under(""), "the request may be of any of %d cells of the site: name its lock or its file with --lock", f)
	}
	return a.atName(ctx, lock, f)
}

// atOneCell is atCells for what only one cell can tell. Where choose returns several, it refuses with a text that has their number.
func (a *app) atOneCell(ctx context.Context, choose func(*cluster.Division) []cluster.CellID, refusal string, f func(context.Context, *remote.Caller) error) error {
	var several error
	err := a.atCells(ctx, func(d *cluster.Division) []cluster.CellID {
		all := choose(d)
		if len(all) > 1 {
			all, several = nil, usagef(refusal, len(all))
		}
		return all
	}, f)
	return cmp.Or(several, err)
}

// atCells runs f with a Caller of each cell of the site that choose returns, one after the other; once, where there is no site. What fails in one
// cell says so, and does not keep f from the others.
func (a *app) atCells(ctx context.Context, choose func(*cluster.Division) []cluster.CellID, f func(context.Context, *remote.Caller) error) error {
	if dir := join.SiteDirectory(a.given()); dir != "" {
		m, err := sitemap.Read(os.DirFS(dir), dir)
		if err != nil {
			return err
		}
		return a.inEach(ctx, m, choose(&m.Division), f)
	}
	var m *sitemap.Map
	err := a.withCaller(ctx, func(ctx context.Context, c *remote.Caller) (err error) {
		if m, err = c.Site(ctx); m != nil || err != nil {
			return err
		}
		return f(ctx, c)
	})
	if m == nil || err != nil {
		return err
	}
	return a.inEach(ctx, m, choose(&m.Division), f)
}

// callerAt returns a Caller of the cell that has a name, for what is asked beside a command. The caller closes it.
func (a *app) callerAt(ctx context.Context, name string, budget time.Duration) (*remote.Caller, error) {
	o := a.asking(budget)
	if dir := join.SiteDirectory(o.Endpoints); dir != "" {
		m, err := sitemap.Read(os.DirFS(dir), dir)
		if err != nil {
			return nil, err
		}
		o.Endpoints = m.Of(name).Endpoints
		return remote.New(o)
	}
	c, err := remote.New(o)
	if err != nil || a.cell.ClusterID != "" { // which is that of the name
		return c, err
	}
	m, err := c.Site(ctx)
	if err != nil || m == nil || len(m.Of(name).Endpoints) == 0 {
		return c, nil //nolint:nilerr // who asks gets the error
	}
	o.Endpoints, o.ClusterID = m.Of(name).Endpoints, m.Of(name).ClusterID
	if err := c.Close(); err != nil {
		return nil, err
	}
	return remote.New(o)
}

// inEach is atCells where the map is known, and the cells are chosen.
func (a *app) inEach(ctx context.Context, m *sitemap.Map, cells []cluster.CellID, f func(context.Context, *remote.Caller) error) error {
	var errs []error
	for _, id := range cells {
		if a.cell = m.Cell(id); a.cell.Unusable != nil {
			errs = append(errs, fmt.Errorf("%v of the site, as the servers tell of it: %w", id, a.cell.Unusable))
			continue
		}
		if len(a.cell.Endpoints) == 0 {
			errs = append(errs, fmt.Errorf("%v of the site is not known to the servers: %w", id, remote.ErrNoServer))
			continue
		}
		err := a.withCaller(ctx, f)
		if err != nil && len(cells) > 1 {
			err = fmt.Errorf("%v: %w", id, err)
		}
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, errInterrupted) {
			break
		}
	}
	if len(cells) > 1 {
		a.cell = sitemap.Cell{}
	}
	return errors.Join(errs...)
}

// of chooses the cell that has a name.
func of(name string) func(*cluster.Division) []cluster.CellID {
	return func(d *cluster.Division) []cluster.CellID { return []cluster.CellID{d.Route(name)} }
}

// under chooses the cells that can have names with a prefix.
func under(prefix string) func(*cluster.Division) []cluster.CellID {
	return func(d *cluster.Division) []cluster.CellID { return d.Under(prefix) }
}

// listEverywhere reads the locks of all cells, in order. The error is of those that are missing.
func (a *app) listEverywhere(ctx context.Context, q *pb.ListLocksRequest) (wire.LocksBody, *callerReader, error) {
	var all wire.LocksBody
	oldest, n := &callerReader{}, 0
	err := a.atCells(ctx, under(q.Prefix), func(ctx context.Context, c *remote.Caller) error {
		r := &callerReader{c: c}
		page, err := listAll(ctx, r, &pb.ListLocksRequest{Prefix: q.Prefix, PrimaryOnly: q.PrimaryOnly})
		if err != nil {
			return err
		}
		oldest.saw(r.age, r.lsn)
		if page.Locks = append(all.Locks, page.Locks...); n > 0 { // positions in two logs cannot be compared
			page.Epoch, page.LSN = 0, 0
		}
		all, n = page, n+1
		return nil
	})
	slices.SortStableFunc(all.Locks, func(a, b wire.LockBody) int { return cmp.Compare(a.Lock, b.Lock) })
	return all, oldest, a.incomplete(err, n, &all.Message)
}

// filesEverywhere is listEverywhere for protected files.
func (a *app) filesEverywhere(ctx context.Context, prefix string, stale bool) (wire.FilesBody, error) {
	var all wire.FilesBody
	n := 0
	err := a.atCells(ctx, under(prefix), func(ctx context.Context, c *remote.Caller) error {
		q := &pb.ListFilesRequest{Prefix: prefix, PrimaryOnly: !stale}
		part := wire.FilesBody{Files: []wire.FileBody{}}
		for more := true; more; more = part.Next != "" {
			q.After = part.Next
			r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.ListFilesResponse, error) {
				return s.ListFiles(ctx, q)
			})
			if err != nil {
				return err
			}
			page := wire.FilesBodyOf(r)
			page.Files = append(part.Files, page.Files...)
			part = page
		}
		if part.Files = append(all.Files, part.Files...); n > 0 {
			part.Epoch, part.LSN = 0, 0
		}
		all, n = part, n+1
		return nil
	})
	slices.SortStableFunc(all.Files, func(a, b wire.FileBody) int { return cmp.Compare(a.File, b.File) })
	return all, a.incomplete(err, n, &all.Message)
}

// incomplete turns the error of some cells into a message, if n others have answered, and into the exit code.
func (a *app) incomplete(err error, n int, message *string) error {
	if err == nil || n == 0 || errors.Is(err, errInterrupted) {
		return err
	}
	*message = "incomplete: " + err.Error()
	a.code = exitCode(err)
	if a.format == formatText {
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", *message)
	}
	return nil
}

// inCell returns the flag by which a command about a request finds its cell, "" if there is no site.
func (a *app) inCell() string {
	if len(a.cell.Endpoints) == 0 {
		return ""
	}
	return a.about(" --lock", aLock, a.about(" --lock", aFile, ""))
}
