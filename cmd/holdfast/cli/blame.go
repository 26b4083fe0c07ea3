// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/index"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// blaming holds the flags of one `holdfast blame`.
type blaming struct {
	app        *app
	file       cluster.FileName
	generation uint64
	offset     int64 // negative = all, like line
	line       int64
	volume     string
}

func (a *app) blameCommand() *cobra.Command {
	x := &blaming{app: a}
	c := &cobra.Command{
		Use: "blame FILE", Short: "Print which client, request and token wrote the bytes of a protected file, and when",
		Long: `Print for each append to a protected file, or for the one that wrote a byte or a line, which
client, request and token made it, and when, by the primary's clock. WHO is the holder of the
token, as the history has it.

The index of a file is written within a second. A crash may lose some of it, if the log of
these appends is gone, too: such bytes are not indexed. With --volume the index is read from
the share, without any server; then an append of the last second may be missing.`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			x.file = cluster.FileName(args[0])
			if err := fileName(args[0]); err != nil {
				return err
			}
			switch changed := c.Flags().Changed; {
			case changed("offset") && changed("line"):
				return usagef("blame: use --offset or --line, not both")
			case changed("offset") && x.offset < 0 || changed("line") && x.line < 1:
				return usagef("blame: an offset is 0 or more, a line 1 or more")
			}
			return x.run(c.Context())
		},
	}
	fl := c.Flags()
	fl.Int64Var(&x.offset, "offset", -1, "only who wrote the byte at this offset")
	fl.Int64Var(&x.line, "line", -1, "only who wrote this line; the first is 1")
	fl.Uint64Var(&x.generation, "generation", 0, "of this generation (default: the present one)")
	fl.StringVar(&x.volume, "volume", "", "read this volume's directory instead of asking a server")
	return c
}

func (x *blaming) run(ctx context.Context) error {
	if x.volume != "" {
		return x.fromVolume(ctx)
	}
	from, length := max(x.offset, 0), int64(0)
	if x.offset >= 0 {
		length = 1
	}
	if x.line > 0 {
		err := x.app.withClient(ctx, func(ctx context.Context, c *clientlib.Client) (err error) {
			f := &remoteFile{ctx: ctx, c: c, file: x.file, generation: cluster.Generation(x.generation)}
			from, length, err = findLine(f, x.line)
			x.generation = uint64(f.generation) // the line is there in this one
			return err
		})
		if err != nil {
			return err
		}
	}
	return x.app.atName(ctx, string(x.file), func(ctx context.Context, c *remote.Caller) error {
		all := wire.BlameBody{Pieces: []wire.BlamedPiece{}}
		q := &pb.BlameFileRequest{File: string(x.file), Generation: x.generation, Offset: from, Length: length}
		for more := true; more; more = all.Next != 0 {
			if all.Next != 0 {
				if q.Offset = all.Next; length > 0 {
					q.Length = from + length - all.Next
				}
			}
			r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.BlameFileResponse, error) {
				return s.BlameFile(ctx, q)
			})
			if err != nil {
				return err
			}
			page := wire.BlameBodyOf(r)
			page.Pieces = append(all.Pieces, page.Pieces...)
			page.Message = cmp.Or(page.Message, all.Message)
			all = page
			q.Generation = all.Generation // it may be rotated meanwhile
		}
		b := blamed{BlameBody: all, Grants: []wire.PastBody{}}
		b.addGrants(ctx, &callerReader{c: c}, lockOf(ctx, c, string(x.file)))
		return x.print(&b)
	})
}

// fromVolume reads the index and, for a line, the file.
func (x *blaming) fromVolume(ctx context.Context) (err error) {
	fsys, err := osfs.Open(x.volume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	q := index.Query{File: x.file, Generation: cluster.Generation(x.generation), Limit: math.MaxInt32}
	lock, end, former, err := x.bind(ctx, fsys, &q)
	if err != nil {
		return err
	}
	q.To = end
	switch {
	case x.offset >= 0:
		q.From, q.To = x.offset, min(x.offset+1, end)
	case x.line > 0:
		name := x.file
		if former || x.kept(fsys) {
			name = volume.KeptName(x.file, q.Generation)
		}
		f, err := volume.OpenReader(fsys, name)
		if errors.Is(err, volume.ErrMoved) {
			return usagef("there is no %s: give an offset, or find the line in the file where generation %d was moved to", volume.ProtectedPath(name), q.Generation)
		}
		if err != nil {
			return err
		}
		from, length, err := findLine(io.NewSectionReader(f, 0, end), x.line)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		q.From, q.To = from, from+length
	}
	b, err := index.ReadBlame(ctx, fsys, q)
	if err == nil && b.Unread > 0 {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if b.Generation == 0 {
		return usagef("file %q is not in the index of this volume: see holdfast file ls", x.file)
	}
	if q.To == math.MaxInt64 {
		if q.To = q.From; len(b.Entries) > 0 {
			q.To = b.Entries[len(b.Entries)-1].End()
		}
	}
	r := &pb.BlameFileResponse{Status: pb.Status_STATUS_OK, File: string(x.file), Generation: uint64(b.Generation)}
	for _, e := range b.Pieces(x.file, q.From, q.To) {
		r.Pieces = append(r.Pieces, &pb.BlamedPiece{
			Offset: e.Offset, Length: e.Length, Crc32C: e.CRC, Lsn: uint64(e.LSN), Token: uint64(e.Token), Epoch: uint64(e.Epoch),
			ClientId: string(e.Client), RequestId: uint64(e.Request), UnixMs: e.Time, Identity: e.Identity,
		})
	}
	all := blamed{BlameBody: wire.BlameBodyOf(r), Grants: []wire.PastBody{}}
	all.addGrantsOf(ctx, x.volume, lock)
	return x.print(&all)
}

// bind limits a query to what the log knows of the file. It returns the lock of the file, "" if it is not
// known, the offset at which the file ends, and whether the query is for a former generation. The index
// alone is not enough: it lags, and has the appends of all bindings.
func (x *blaming) bind(ctx context.Context, fsys vfs.FS, q *index.Query) (lock string, end int64, former bool, err error) {
	end = math.MaxInt64
	say := func(format string, a ...any) { fmt.Fprintf(x.app.Stderr, "holdfast: "+format+"\n", a...) }
	s, err := volume.ReadState(ctx, fsys, func(err error) { say("reading again: %v", err) })
	if err != nil {
		say("by the index alone, which may be behind: %v", err)
		return "", end, false, ctx.Err()
	}
	f, bound := s.Table.File(q.File)
	switch {
	case !bound: // any more
	case q.Generation > f.Generation:
		return "", 0, false, usagef("file %q is at generation %d", q.File, f.Generation)
	case q.Generation == 0 || q.Generation == f.Generation:
		q.Generation, q.After, end = f.Generation, f.Since, f.End
	default:
		q.Through, former = f.Since, true
	}
	return string(f.Lock), end, former, nil
}

// kept reports whether the generation is still there as FILE.gN.
func (x *blaming) kept(fsys vfs.FS) bool {
	if x.generation == 0 {
		return false
	}
	_, err := fsys.Lstat(volume.ProtectedPath(volume.KeptName(x.file, cluster.Generation(x.generation))))
	return err == nil
}

func (x *blaming) print(b *blamed) error {
	return x.app.print(b, func(w io.Writer) {
		fmt.Fprintf(w, "%s, generation %d\n", x.file, b.Generation)
		table(w, func(row func(...any)) {
			now := x.app.now()
			row("OFFSET", "LENGTH", "TIME", "WHO", "CLIENT", "REQUEST", "TOKEN", "EPOCH", "LSN")
			for _, p := range b.Pieces {
				if !p.Indexed {
					row(p.Offset, p.Length, "not indexed", "-", "-", "-", "-", "-", "-")
					continue
				}
				row(p.Offset, p.Length, timeText(p.Time.Time(), now), b.who(&p), p.ClientID, p.RequestID, p.Token, p.Epoch, p.LSN)
			}
		})
		if b.Message != "" {
			fmt.Fprintln(w, b.Message)
		}
	})
}

// remoteFile is an io.Reader of one generation from its beginning, through the service.
type remoteFile struct {
	ctx        context.Context
	c          *clientlib.Client
	file       cluster.FileName
	generation cluster.Generation
	at         int64
}

// Read implements io.Reader.
func (r *remoteFile) Read(b []byte) (int, error) {
	p, err := r.c.ReadFile(r.ctx, r.file, clientlib.ReadOptions{Generation: r.generation, Offset: r.at, Limit: min(len(b), cluster.MaxAppend)})
	if err != nil {
		return 0, err
	}
	r.generation = p.Generation
	r.at += int64(len(p.Data))
	if len(p.Data) == 0 {
		return 0, io.EOF
	}
	return copy(b, p.Data), nil
}

// findLine returns the offset and length in bytes of a line, its newline included. The first
// line is 1.
func findLine(r io.Reader, line int64) (from, length int64, err error) {
	b := make([]byte, cluster.MaxAppend)
	n, at := int64(1), int64(0)
	for {
		got, err := r.Read(b)
		for rest := b[:got]; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				at += int64(len(rest))
				break
			}
			at += int64(i) + 1
			rest = rest[i+1:]
			if n == line {
				return from, at - from, nil
			}
			n, from = n+1, at
		}
		switch {
		case errors.Is(err, io.EOF) && n == line && at > from:
			return from, at - from, nil // a last line without an end
		case errors.Is(err, io.EOF):
			if at == from {
				n-- // nothing follows the last newline
			}
			return 0, 0, usagef("--line %d: the file has %d lines", line, n)
		case err != nil:
			return 0, 0, err
		}
	}
}
