// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/bench"
)

func appends(ctx context.Context, e *Env) (rows []bench.Row, err error) {
	for _, size := range e.Sizes {
		row := bench.Row{Workload: "append", Target: Name, Unit: "appends", Size: size, Offered: e.Rate}
		some, err := e.shapedRows(ctx, row, e.workers(1, 64), e.connect, func(t target, n int) bench.Load {
			l := bench.Appends(t, prefix("append"), n, size, e.Verify(t.(*Holdfast)))
			l.Rate = e.Rate
			return l
		})
		rows = append(rows, some...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// Verify returns a function that compares what a worker appended with the file's state in the
// service and, if the servers run on this machine, with the file itself.
func (e *Env) Verify(t *Holdfast) func(context.Context, bench.Appended) error {
	return func(ctx context.Context, a bench.Appended) error {
		info, err := t.client(0).Get(ctx, clientlib.LockName(a.Key))
		if err != nil {
			return err
		}
		want := a.Count * int64(a.Size)
		for _, f := range info.Files {
			if string(f.Name) == a.File && f.End != want {
				return fmt.Errorf("%s ends at %d by the service's word, but %d bytes were acknowledged", a.File, f.End, want)
			}
		}
		if e.Servers == nil || a.Count == 0 {
			return nil
		}
		f, err := os.Open(e.Servers.File(a.File))
		if err != nil {
			return err
		}
		return errors.Join(verifyRecords(f, a), f.Close())
	}
}

// verifyRecords reads a file to its end and checks that it has exactly the records.
func verifyRecords(f io.Reader, a bench.Appended) error {
	r := bufio.NewReaderSize(f, 1<<20)
	want, got := make([]byte, a.Size), make([]byte, a.Size)
	for n := range a.Count {
		bench.Record(want, n)
		if _, err := io.ReadFull(r, got); err != nil {
			return fmt.Errorf("%s: record %d of %d acknowledged ones: %w", a.File, n+1, a.Count, err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s: record %d is not what was appended", a.File, n+1)
		}
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: there is more than the %d records that were acknowledged (%w)", a.File, a.Count, err)
	}
	return nil
}
