// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// newClient returns a client of the servers that the command line names.
func (a *app) newClient(o clientlib.Options) (*clientlib.Client, error) {
	check := a.checkServers
	if all := a.servers(); join.IsSite(all) { // of which each cell is looked at by itself
		check = func() error { return a.checkClient(all) }
	}
	if err := check(); err != nil {
		return nil, err
	}
	o.Endpoints, o.Budget, o.Credential, o.Certificate = a.servers(), a.budget, a.credential(), a.certificate()
	c, err := clientlib.New(o)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return c, nil
}

// withClient runs f with a client; SIGINT and SIGTERM cancel its context.
func (a *app) withClient(ctx context.Context, f func(context.Context, *clientlib.Client) error) (err error) {
	c, err := a.newClient(clientlib.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, stop := untilSignal(ctx)
	defer stop()
	err = f(ctx, c)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	return err
}

// filePiece is the JSON form of a piece of a file; the data is in base64.
type filePiece struct {
	Status     string `json:"status"`
	File       string `json:"file"`
	Generation uint64 `json:"generation"`
	Offset     int64  `json:"offset"`
	Length     int    `json:"length"`
	End        int64  `json:"end"`
	Sealed     bool   `json:"sealed"`
	Epoch      uint64 `json:"epoch"`
	LSN        uint64 `json:"lsn"`
	Data       []byte `json:"data"`
}

// printPiece writes bytes as they are, or one object on one line.
func (a *app) printPiece(file string, p *clientlib.FilePiece, offset int64, data []byte) error {
	if a.format != formatJSON {
		_, err := a.Stdout.Write(data)
		return err
	}
	return writeJSON(a.Stdout, filePiece{
		Status: cluster.StatusOK.String(), File: file, Generation: uint64(p.Generation), Offset: offset, Length: len(data),
		End: p.End, Sealed: p.Sealed, Epoch: uint64(p.Epoch), LSN: uint64(p.LSN), Data: data,
	})
}

func (a *app) catCommand() *cobra.Command {
	var o clientlib.ReadOptions
	var generation uint64
	limit := int64(-1)
	c := &cobra.Command{
		Use: "cat FILE", Short: "Write a protected file to the standard output, as far as it is acknowledged",
		Long: `Write a protected file to the standard output, through the service: no share has to
be mounted. It writes appends that are committed and in the file, up to where the file
ended when the command began.`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := fileName(args[0]); err != nil {
				return err
			}
			if o.Offset < 0 || c.Flags().Changed("limit") && limit < 0 {
				return usagef("--offset %d, --limit %d: use 0 or more", o.Offset, limit)
			}
			o.Generation = cluster.Generation(generation)
			return a.withClient(c.Context(), func(ctx context.Context, c *clientlib.Client) error {
				return a.cat(ctx, c, args[0], o, limit)
			})
		},
	}
	fl := c.Flags()
	fl.Int64Var(&o.Offset, "offset", 0, "where to begin, in bytes")
	fl.Int64Var(&limit, "limit", -1, "how many bytes at most (default: all)")
	fl.Uint64Var(&generation, "generation", 0, "only of this generation (default: the present one)")
	return c
}

// cat prints one generation up to where it ended when the command began.
func (a *app) cat(ctx context.Context, c *clientlib.Client, file string, o clientlib.ReadOptions, limit int64) error {
	end := int64(-1)
	for {
		if limit >= 0 {
			o.Limit = int(max(1, min(limit, cluster.MaxAppend))) // 0 would be all
		}
		p, err := c.ReadFile(ctx, cluster.FileName(file), o)
		if err != nil {
			return err
		}
		if end < 0 {
			end = p.End
			if limit >= 0 {
				end = min(end, o.Offset+limit)
			}
		}
		p.Data = p.Data[:max(0, min(int64(len(p.Data)), end-p.Offset))]
		if err := a.printPiece(file, &p, p.Offset, p.Data); err != nil {
			return err
		}
		o.Generation, o.Offset = p.Generation, p.Offset+int64(len(p.Data))
		if o.Offset >= end || len(p.Data) == 0 {
			return nil
		}
		limit = end - o.Offset
	}
}

// tailing holds the flags of one `holdfast tail`.
type tailing struct {
	app    *app
	file   cluster.FileName
	follow bool
	lines  int
	from   int64 // negative = by lines
}

func (a *app) tailCommand() *cobra.Command {
	x := &tailing{app: a}
	c := &cobra.Command{
		Use: "tail FILE", Short: "Write the end of a protected file, and with -f new appends to it",
		Long: `Write the last lines of a protected file to the standard output, through the service: no
share has to be mounted. With -f continue with new appends, also across failovers; at a
rotation print a line on the standard error and continue with the new generation.`,
		Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			x.file = cluster.FileName(args[0])
			if err := fileName(args[0]); err != nil {
				return err
			}
			switch changed := c.Flags().Changed; {
			case x.lines < 0 || changed("from") && x.from < 0:
				return usagef("tail: --lines and --from are 0 or more")
			case changed("from") && changed("lines"):
				return usagef("tail: use --lines or --from, not both")
			}
			return a.withClient(c.Context(), x.run)
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&x.follow, "follow", "f", false, "continue with new appends, until interrupted")
	fl.IntVarP(&x.lines, "lines", "n", 10, "how many of the last lines to write")
	fl.Int64Var(&x.from, "from", -1, "begin at this offset, in bytes")
	return c
}

func (x *tailing) run(ctx context.Context, c *clientlib.Client) error {
	p, err := c.ReadFile(ctx, x.file, clientlib.ReadOptions{Limit: 1})
	if err != nil {
		return err
	}
	from := x.from
	if from < 0 {
		if from, err = x.lastLines(ctx, c, &p); err != nil {
			return err
		}
	}
	if !x.follow {
		return x.app.cat(ctx, c, string(x.file), clientlib.ReadOptions{Generation: p.Generation, Offset: from}, -1)
	}
	f := c.Follow(ctx, x.file, clientlib.FollowOptions{Generation: p.Generation, Offset: from})
	defer f.Close() //nolint:errcheck // nothing is in flight
	b := make([]byte, cluster.MaxAppend)
	for {
		_, at := f.Place()
		n, err := f.Read(b)
		if r, ok := errors.AsType[*clientlib.RotatedError](err); ok {
			fmt.Fprintf(x.app.Stderr, "holdfast: %v\n", r)
			continue
		}
		if err != nil {
			return err
		}
		p := f.Piece()
		if err := x.app.printPiece(string(x.file), &p, at, b[:n]); err != nil {
			return err
		}
	}
}

// tailStep is how many bytes are read at a time in the search for lines, backwards.
const tailStep = 64 << 10

// lastLines returns the offset at which the last lines begin. A line without a newline counts.
func (x *tailing) lastLines(ctx context.Context, c *clientlib.Client, p *clientlib.FilePiece) (int64, error) {
	at, left := p.End, x.lines
	if left == 0 {
		return at, nil
	}
	for last := true; at > 0; last = false {
		n := min(at, tailStep)
		got, err := c.ReadFile(ctx, x.file, clientlib.ReadOptions{Generation: p.Generation, Offset: at - n, Limit: int(n)})
		if err != nil {
			return 0, err
		}
		b := got.Data
		if int64(len(b)) != n {
			return 0, &wire.Error{Status: cluster.StatusError, Message: fmt.Sprintf("%d bytes were sent, not %d", len(b), n)}
		}
		at -= n
		if last && b[n-1] == '\n' {
			b = b[:n-1] // it ends the last line
		}
		for i := len(b); i > 0; {
			if i = bytes.LastIndexByte(b[:i], '\n'); i < 0 {
				break
			}
			if left--; left == 0 {
				return at + int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}
