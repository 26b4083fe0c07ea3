// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Pairs returns the load of acquire and release, each worker on a key of its own or
// all on one. The timing is that of the acquire.
func Pairs(t Target, mode Mode, prefix string, workers int) Load {
	var holders atomic.Int32 // of the one key
	return Load{
		Unit: "pairs", Workers: workers, PIDs: t.PIDs(),
		Open: func(ctx context.Context, worker int) (Worker, error) {
			l, err := t.Locker(ctx, worker, mode)
			if err != nil {
				return nil, err
			}
			if mode == Queue {
				return &contender{pair{l, prefix}, &holders}, nil
			}
			return &pair{l, fmt.Sprintf("%s/%d", prefix, worker)}, nil
		},
	}
}

type pair struct {
	Locker
	key string
}

func (p *pair) Step(ctx context.Context) (Timing, error) {
	began := time.Now()
	if err := p.Acquire(ctx, p.key); err != nil {
		return Timing{}, err
	}
	held := time.Now()
	if err := p.Release(ctx); err != nil {
		return Timing{}, err
	}
	return Timing{Op: held.Sub(began), Release: time.Since(held)}, nil
}

// contender also checks, right after each grant, that no other worker holds the key. That
// finds a wrong driver, but proves nothing about a service.
type contender struct {
	pair
	holders *atomic.Int32
}

func (c *contender) Step(ctx context.Context) (Timing, error) {
	began := time.Now()
	if err := c.Acquire(ctx, c.key); err != nil {
		return Timing{}, err
	}
	held := time.Now()
	if n := c.holders.Add(1); n != 1 {
		return Timing{}, fmt.Errorf("%d workers hold %s at once", n, c.key)
	}
	c.holders.Add(-1)
	if err := c.Release(ctx); err != nil {
		return Timing{}, err
	}
	return Timing{Op: held.Sub(began), Release: time.Since(held)}, nil
}

// Appended describes the acknowledged appends of one worker of Appends.
type Appended struct {
	Key, File string
	// Count is the number of acknowledged appends, each Size bytes long.
	Count int64
	Size  int
}

// appendNames are the lock and the file of one worker.
func appendNames(prefix string, worker int) (key, file string) {
	return fmt.Sprintf("%s/%d", prefix, worker), fmt.Sprintf("%s/%d.log", prefix, worker)
}

// Record fills record with the n-th record of a file: its number, repeated, so that a
// lost, doubled, moved or torn record is found.
func Record(record []byte, n int64) {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], uint64(n)+1)
	for at := 0; at < len(record); at += len(number) {
		copy(record[at:], number[:])
	}
}

// Appends returns the load of appends, each worker to a file of its own, under a lock that it
// holds all the time. Before a worker releases its lock it
// calls verify with what it appended.
func Appends(t Target, prefix string, workers, size int, verify func(context.Context, Appended) error) Load {
	return Load{
		Unit: "appends", Workers: workers, PIDs: t.PIDs(),
		Open: func(ctx context.Context, worker int) (Worker, error) {
			l, err := t.Locker(ctx, worker, Alone)
			if err != nil {
				return nil, err
			}
			a, ok := l.(Appender)
			if !ok {
				return nil, errors.Join(fmt.Errorf("%s does not append", t.Name()), l.Close())
			}
			w := &appender{Appender: a, record: make([]byte, size), verify: verify}
			w.done.Key, w.done.File = appendNames(prefix, worker)
			w.done.Size = size
			if err := a.Acquire(ctx, w.done.Key); err != nil {
				return nil, errors.Join(err, a.Close())
			}
			return w, nil
		},
	}
}

type appender struct {
	Appender
	record []byte
	done   Appended
	failed bool
	verify func(context.Context, Appended) error
}

func (w *appender) Step(ctx context.Context) (Timing, error) {
	Record(w.record, w.done.Count)
	began := time.Now()
	if err := w.Append(ctx, w.done.File, w.record); err != nil {
		w.failed = true
		return Timing{}, err
	}
	t := Timing{Op: time.Since(began)}
	w.done.Count++
	return t, nil
}

// closeLimit bounds what is done after the measurement.
const closeLimit = time.Minute

// Close verifies first, unless it is not known what was appended.
func (w *appender) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var err error
	if !w.failed && w.verify != nil {
		err = w.verify(ctx, w.done)
	}
	return errors.Join(err, w.Release(ctx), w.Appender.Close())
}
