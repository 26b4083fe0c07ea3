// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// appending holds the flags of one `holdfast append`.
type appending struct {
	app        *app
	lock, file string
	token      uint64
	lease      lease
	id         identity
	split      bool
	adopt      bool
	at         int64 // negative = wherever the file ends
	// lines and whole choose how the input is appended; by default it depends on what it is.
	lines, whole bool
	verbose      bool
	// patience is how long a stream tries on while no server takes appends.
	patience time.Duration
}

const appendHelp = `Append the standard input to a protected file, FILE below files/ on the volume,
exactly once. With --token the append uses that grant; without it, the command acquires
the lock, appends and releases. Inside holdfast run of that lock the token is taken from
$HOLDFAST_TOKEN. Nothing is printed but errors; -v and -o json print what was appended.

From a pipe or a terminal, lines are appended as they come, as with >>. Whole lines are
collected for half a second, or up to 1 MiB, and appended together: each line once, also when
servers are killed or restarted meanwhile. The lock is acquired for each of these appends, so
that others can append in between; --wait is forever then, if not given. While no server takes
appends, the command reads no more than it has room for, and tries on for --patience. SIGINT
and SIGTERM end the input. If the stream ends early, the error says how many lines and bytes
are certainly in the file. A line of more than 1 MiB is an error, or cut with --split.

From a file, or with --whole, --at or --client-id, the input is one append of at most 1 MiB,
written whole or not at all. More is refused, or with --split appended in pieces: each
exactly once, but readers may see some of them without the rest if this command is ended.
--lines appends a file by lines.

With --client-id and --request-id the command can be repeated with the same data: what
was appended is not appended again, and other data is refused. With --split the pieces
take that request ID and the following ones. The last 64 requests of such a client are
remembered, so 64 MiB can be repeated; data added after them since then is appended.

With --at the data is appended only if it goes to that offset, for example when you
have read the file up to there. Else nothing is appended, and the error has the offset
at which the file ends.`

const appendExamples = `  ./nightly.sh 2>&1 | holdfast append logs/nightly nightly.log   as with >> nightly.log
  holdfast append reports/daily daily.csv < rows.csv            all rows, or none`

func (a *app) appendCommand() *cobra.Command {
	x := &appending{app: a}
	c := &cobra.Command{
		Use:     "append LOCK FILE < data",
		Short:   "Append the standard input to a protected file, exactly once",
		Long:    appendHelp,
		Example: appendExamples,
		Args:    exactly("LOCK", "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			x.lock, x.file = args[0], args[1]
			if err := firstError(x.lease.check(), x.id.check(), fileName(x.file)); err != nil {
				return err
			}
			if c.Flags().Changed("at") && x.at < 0 {
				return usagef("--at %d: an offset is 0 or more", x.at)
			}
			var err error
			if x.token, err = x.app.ownToken(c, x.lock, x.token); err != nil {
				return err
			}
			streams, err := x.streams()
			if err != nil {
				return err
			}
			if !streams {
				return x.run(c.Context())
			}
			if !c.Flags().Changed("wait") {
				x.lease.wait = "forever"
			}
			return x.stream(c.Context())
		},
	}
	fl := c.Flags()
	tokenFlag(c, &x.token, "the token of the lock (default: that of the holdfast run above, else get the lock for this)")
	x.lease.flags(fl, "1m")
	x.id.flags(fl)
	fl.Int64Var(&x.at, "at", -1, "append only if the data goes to this offset of the file, in bytes")
	fl.BoolVar(&x.split, "split", false, "append more than 1 MiB, or a line of more, in pieces")
	fl.BoolVar(&x.lines, "lines", false, "append lines as they come (the default for a pipe or a terminal)")
	fl.BoolVar(&x.whole, "whole", false, "append all of the input at once (the default for a file)")
	fl.DurationVar(&x.patience, "patience", 10*time.Minute, "how long to try on while no server takes appends, once a line was appended as it came")
	fl.BoolVarP(&x.verbose, "verbose", "v", false, "print what was appended")
	fl.BoolVar(&x.adopt, "adopt-existing", false, "take a file that is not empty and not bound to a lock yet")
	return c
}

// streams reports whether lines are appended as they come.
func (x *appending) streams() (bool, error) {
	once := x.whole || x.at >= 0 || x.id.named()
	if x.lines && once {
		return false, usagef("--lines appends in many requests, and --whole, --at and --client-id are for a single one: leave one of them out")
	}
	return x.lines || !once && comesInPieces(x.app.Stdin), nil
}

// tell prints a result if it was asked for: scripts append often.
func (x *appending) tell(v any, text func(io.Writer)) error {
	if x.app.format == formatText && !x.verbose {
		return nil
	}
	return x.app.print(v, text)
}

func fileName(name string) error {
	if err := cluster.FileName(name).Validate(); err != nil {
		return usagef("%v: name a file below files/ on the volume", err)
	}
	return nil
}

func (x *appending) run(ctx context.Context) error {
	in := bufio.NewReaderSize(x.app.Stdin, 2*cluster.MaxAppend)
	// The first piece is read before the lock is acquired: no waiter shall wait for a slow pipe.
	first, more, err := piece(in)
	switch {
	case err != nil:
		return fmt.Errorf("read the standard input: %w", err)
	case len(first) == 0:
		return usagef("append: the standard input is empty: there is nothing to append")
	case more && !x.split:
		return &wire.Error{Status: cluster.StatusTooLarge, Message: fmt.Sprintf("the standard input has more than %d bytes", cluster.MaxAppend)}
	}
	return x.app.atName(ctx, x.lock, func(ctx context.Context, c *remote.Caller) error {
		id := x.app.identify(x.id)
		if x.id.named() && !more {
			// A repeat of what was executed needs no lock.
			if r, n, err := x.executed(ctx, c, id, first); err != nil || n == len(first) {
				return x.print([]*pb.Answer{r}, err)
			}
		}
		var all []*pb.Answer
		err := x.app.withToken(ctx, c, x.lock, x.token, &x.lease, func(token uint64) (err error) {
			all, err = x.pieces(ctx, c, id, token, first, in)
			return err
		})
		return x.print(all, err)
	})
}

// pieces appends data and the rest of in, each piece under the next request ID. It returns
// the answers so far also with an error.
func (x *appending) pieces(ctx context.Context, c *remote.Caller, id identity, token uint64, data []byte, in *bufio.Reader) (all []*pb.Answer, err error) {
	for x.app.first = id.request; len(data) > 0; id.request++ {
		x.app.request = id
		r, n, err := x.append(ctx, c, id, token, data)
		if err != nil {
			return all, err
		}
		all = append(all, r)
		if x.at >= 0 { // of the next piece
			x.at = r.GetReceipt().GetOffset() + r.GetReceipt().GetLength()
		}
		if data = data[n:]; len(data) > 0 {
			continue // an earlier run had less to append
		}
		if data, _, err = piece(in); err != nil {
			return all, fmt.Errorf("read the standard input: %w", err)
		}
	}
	return all, nil
}

// piece reads as much as fits into one append. more is true if there is more input after it.
func piece(in *bufio.Reader) (data []byte, more bool, err error) {
	data = make([]byte, cluster.MaxAppend)
	n, err := io.ReadFull(in, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return data[:n], false, nil
	}
	if err != nil {
		return nil, false, err
	}
	_, err = in.Peek(1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	return data, err == nil, nil
}

// append appends data in one request and returns n, how many bytes of data are appended. It
// is less than all of it if an earlier run appended a shorter piece under this ID.
func (x *appending) append(ctx context.Context, c *remote.Caller, id identity, token uint64, data []byte) (r *pb.Answer, n int, err error) {
	if x.id.named() {
		if r, n, err := x.executed(ctx, c, id, data); r != nil || err != nil {
			return r, n, err
		}
	}
	q := &pb.FileAppendRequest{
		ClientId: id.client, RequestId: id.request, Lock: x.lock, Token: token, File: x.file, Data: data, AdoptExisting: x.adopt,
	}
	if x.at >= 0 {
		q.ExpectedOffset = &x.at
	}
	r, err = remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.FileAppend(ctx, q) })
	return r, len(data), err
}

// executed returns the answer that an earlier run of this command got for the request, nil if
// there is none, and how many bytes of data that run appended: all, or with --split perhaps
// only the first ones. The request itself cannot be repeated, as its token was another one.
func (x *appending) executed(ctx context.Context, c *remote.Caller, id identity, data []byte) (o *pb.Answer, n int, err error) {
	r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.OutcomeResponse, error) {
		return s.Outcome(ctx, &pb.OutcomeRequest{ClientId: id.client, RequestId: id.request})
	})
	if err != nil {
		return nil, 0, err
	}
	switch r.GetState() {
	case pb.RequestState_REQUEST_STATE_EXECUTED:
	case pb.RequestState_REQUEST_STATE_CANCELLED:
		return nil, 0, &wire.Error{Status: cluster.StatusCancelled, Client: cluster.ClientID(id.client), Request: cluster.RequestID(id.request)}
	default:
		return nil, 0, nil
	}
	o = r.GetOutcome()
	if o.GetReceipt().GetFile() != x.file {
		return nil, 0, usagef("request %d of client %s was another one: use a higher --request-id", id.request, id.client)
	}
	if err := wire.AnswerError(o); err != nil {
		return nil, 0, err
	}
	if !x.begins(data, o.GetReceipt()) {
		return nil, 0, usagef("request %d of client %s appended other data, %d bytes at offset %d of %s: repeat it with the same data, or use a higher --request-id",
			id.request, id.client, o.GetReceipt().GetLength(), o.GetReceipt().GetOffset(), x.file)
	}
	o.Repeat = true
	return o, int(o.GetReceipt().GetLength()), nil
}

// begins reports whether a receipt is for what this run would append: the data,
// or with --split the beginning of it, at the offset of --at.
func (x *appending) begins(data []byte, r *pb.Receipt) bool {
	n := r.GetLength()
	switch {
	case n <= 0 || n > int64(len(data)), n < int64(len(data)) && !x.split:
		return false
	case x.at >= 0 && r.GetOffset() != x.at:
		return false
	}
	return crc32.Checksum(data[:n], crc32.MakeTable(crc32.Castagnoli)) == r.GetCrc32C()
}

type appended struct {
	wire.Body
	Appends []wire.Body `json:"appends"`
}

// print prints the last receipt, with the offset of the first one and the length of all.
func (x *appending) print(all []*pb.Answer, err error) error {
	if err != nil {
		if n := len(all); n > 0 && all[0] != nil {
			last := all[n-1].GetReceipt()
			return fmt.Errorf("after %d pieces, up to offset %d: %w", n, last.GetOffset()+last.GetLength(), err)
		}
		return err
	}
	last := all[len(all)-1].GetReceipt()
	out := appended{Body: wire.BodyOf(all[len(all)-1]), Appends: []wire.Body{}}
	whole := wire.Place{Offset: all[0].GetReceipt().GetOffset(), CRC32C: last.GetCrc32C(), Generation: last.GetGeneration()}
	for _, r := range all {
		whole.Length += r.GetReceipt().GetLength()
		out.Appends = append(out.Appends, wire.BodyOf(r))
	}
	out.Place = &whole
	return x.tell(out, func(w io.Writer) {
		again := ""
		if out.Repeat {
			again = " (by an earlier run)"
		}
		fmt.Fprintf(w, "%s: %d bytes at offset %d, LSN %d, token %d%s\n", x.file, out.Length, out.Offset, out.LSN, out.Token, again)
	})
}
