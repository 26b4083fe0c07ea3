// SPDX-License-Identifier: Apache-2.0

// Package starve takes processor time and the disk away from the servers that run beside it: busy loops,
// each a thread with the priority of every other process, and a file that is written and synced without
// a pause. Both run as helpers and end with the program that started them.
package starve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast-bench/helper"
)

const (
	// KindLoops and KindDisk are the kinds of the helpers that run Loops and Disk.
	KindLoops = "loops"
	KindDisk  = "disk"
	// MaxLoops bounds the busy loops: more starve whoever wants to end them.
	MaxLoops = 1024
	// fileBytes is the size of the file that is written again and again, chunkBytes what is written
	// between two syncs.
	fileBytes  = 64 << 20
	chunkBytes = 4 << 20
	// turn is how many steps a loop makes before it looks whether the end has come.
	turn = 1 << 20
)

// Load is what takes the machine away. Close ends it.
type Load struct{ helpers []*helper.Process }

// Start starts so many busy loops, and the writer of a file in dir.
func Start(loops int, dir string) (*Load, error) {
	l := &Load{}
	for _, x := range [][]string{{KindLoops, strconv.Itoa(loops)}, {KindDisk, dir}} {
		p, err := helper.Start(x[0], x[1:]...)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.helpers = append(l.helpers, p)
	}
	return l, nil
}

// Close ends the load; it returns when it has ended.
func (l *Load) Close() error { return helper.CloseAll(l.helpers) }

// Loops runs busy loops until in ends; its argument is how many.
func Loops(ctx context.Context, args []string, in io.Reader, _ io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: give the number of loops", len(args))
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 1 || n > MaxLoops {
		return fmt.Errorf("%q loops: use 1 to %d", args[0], MaxLoops)
	}
	ctx, cancel := helper.UntilEnd(ctx, in)
	defer cancel()
	// One more, so that the end of in is noticed beside them.
	runtime.GOMAXPROCS(n + 1)
	var looping sync.WaitGroup
	for range n {
		looping.Go(func() {
			for sum := uint64(1); ctx.Err() == nil; {
				for range turn {
					sum = sum*6364136223846793005 + 1
				}
				runtime.KeepAlive(sum)
			}
		})
	}
	looping.Wait()
	return nil
}

// Disk writes and syncs a file until in ends; its argument is the directory. It removes the file.
func Disk(ctx context.Context, args []string, in io.Reader, _ io.Writer) (err error) {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: give a directory", len(args))
	}
	ctx, cancel := helper.UntilEnd(ctx, in)
	defer cancel()
	f, err := os.CreateTemp(args[0], "starve-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	chunk := make([]byte, chunkBytes)
	for at := int64(0); ctx.Err() == nil; at = (at + chunkBytes) % fileBytes {
		chunk[0]++
		if _, err := f.WriteAt(chunk, at); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
	}
	return nil
}
