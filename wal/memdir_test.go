// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

const sectorSize = 512

var errInjected = errors.New("injected")

// fault says how the failing call of a memDir fails.
type fault int

const (
	failedNotDone fault = iota
	failedButDone
	failedTorn // some sectors of a write; otherwise like failedNotDone
)

// memDir is a Dir in memory that knows what is visible and what is durable.
type memDir struct {
	mu      sync.Mutex
	visible map[string]*memFile
	durable map[string]*memFile
	pending []func(map[string]*memFile) // name changes since the last Sync
	open    int                         // handles

	// Every mutating call counts. The call with number failAt fails with failErr.
	calls   int
	failAt  int
	fault   fault
	failErr error
	failed  string // the call that failed
	late    []string
	rng     *rand.Rand
	// beforeRename, if set, runs before each Rename.
	beforeRename func()
	// beforeSync, if set, runs before each Sync.
	beforeSync func()
}

// memFile is an inode.
type memFile struct {
	visible, durable []byte
	dirty            [][2]int // ranges that differ
}

// memHandle is an open memFile.
type memHandle struct {
	d      *memDir
	name   string
	f      *memFile
	closed bool
}

func newMemDir() *memDir {
	return &memDir{visible: map[string]*memFile{}, durable: map[string]*memFile{}, failErr: errInjected, rng: rand.New(rand.NewPCG(1, 2))}
}

// prepared is a directory with a prepared first segment, as a claim makes it.
func prepared(t testing.TB, size int64) *memDir {
	t.Helper()
	d := newMemDir()
	if _, err := d.Create(NextName, size); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	d.calls = 0
	return d
}

// do counts a mutating call and runs it, unless it is the one that fails.
func (d *memDir) do(call string, torn, run func()) error {
	d.calls++
	if d.failed != "" {
		d.late = append(d.late, call)
	}
	if d.calls != d.failAt {
		run()
		return nil
	}
	d.failed = call
	switch {
	case d.fault == failedButDone:
		run()
	case d.fault == failedTorn && torn != nil:
		torn()
	}
	return fmt.Errorf("%s: %w", call, d.failErr)
}

func (d *memDir) Names() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.visible)), nil
}

func (d *memDir) Open(name string) (File, error) { return d.OpenWrite(name) }

func (d *memDir) OpenWrite(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.visible[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return d.handle(name, f), nil
}

func (d *memDir) Create(name string, size int64) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.visible[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	f := &memFile{visible: make([]byte, size), durable: make([]byte, size)}
	err := d.do("create "+name, nil, func() { d.change(func(m map[string]*memFile) { m[name] = f }) })
	if err != nil {
		return nil, err
	}
	return d.handle(name, f), nil
}

// handle opens a file. It is called with d.mu held.
func (d *memDir) handle(name string, f *memFile) *memHandle {
	d.open++
	return &memHandle{d: d, name: name, f: f}
}

func (d *memDir) Rename(oldName, newName string) error {
	if d.beforeRename != nil {
		d.beforeRename()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.visible[oldName]
	if f == nil || d.visible[newName] != nil {
		return fmt.Errorf("rename %s to %s: source missing or name taken", oldName, newName)
	}
	return d.do("rename", nil, func() {
		d.change(func(m map[string]*memFile) { delete(m, oldName); m[newName] = f })
	})
}

func (d *memDir) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.visible[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	return d.do("remove "+name, nil, func() { d.change(func(m map[string]*memFile) { delete(m, name) }) })
}

func (d *memDir) Sync() error {
	if d.beforeSync != nil {
		d.beforeSync()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.do("sync directory", nil, func() {
		d.durable = maps.Clone(d.visible)
		d.pending = nil
	})
}

// change applies a change of names to what is visible and keeps it for Sync.
func (d *memDir) change(c func(map[string]*memFile)) {
	c(d.visible)
	d.pending = append(d.pending, c)
}

// link shares a file with another directory, as adoption does.
func (d *memDir) link(from *memDir, name string) {
	d.visible[name] = from.visible[name]
	d.durable[name] = from.visible[name]
}

// crash is what may be left when everything stops: what is durable, and any
// part of the rest, sector by sector and name by name.
func (d *memDir) crash(rng *rand.Rand) *memDir {
	c := newMemDir()
	names := maps.Clone(d.durable)
	for _, change := range d.pending {
		if rng.IntN(2) == 0 {
			change(names)
		}
	}
	for name, f := range names {
		content := make([]byte, max(len(f.durable), len(f.visible)))
		copy(content, f.durable)
		for _, r := range f.dirty {
			for off := r[0]; off < min(r[1], len(f.visible)); off += sectorSize {
				if end := min(off+sectorSize, len(f.visible)); rng.IntN(2) == 0 {
					copy(content[off:end], f.visible[off:end])
				}
			}
		}
		c.put(name, content)
	}
	return c
}

// alive is what other processes see when only this one stops.
func (d *memDir) alive() *memDir {
	c := newMemDir()
	for name, f := range d.visible {
		c.put(name, bytes.Clone(f.visible))
	}
	return c
}

func (d *memDir) put(name string, content []byte) {
	f := &memFile{visible: content, durable: bytes.Clone(content)}
	d.visible[name], d.durable[name] = f, f
}

// bytes is the content of a file.
func (d *memDir) bytes(name string) []byte { return d.visible[name].visible }

func (h *memHandle) ReadAt(p []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if off >= int64(len(h.f.visible)) {
		return 0, io.EOF
	}
	n := copy(p, h.f.visible[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *memHandle) WriteAt(p []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if off%BlockSize != 0 || len(p)%BlockSize != 0 || !aligned(p) {
		return 0, fmt.Errorf("write of %d bytes at %d is not aligned", len(p), off)
	}
	h.f.dirty = append(h.f.dirty, [2]int{int(off), int(off) + len(p)})
	full := func() {
		if grow := int(off) + len(p) - len(h.f.visible); grow > 0 {
			h.f.visible = append(h.f.visible, make([]byte, grow)...)
		}
		copy(h.f.visible[off:], p)
	}
	torn := func() {
		for s := 0; s+sectorSize <= len(p) && int(off)+s+sectorSize <= len(h.f.visible); s += sectorSize {
			if h.d.rng.IntN(2) == 0 {
				copy(h.f.visible[int(off)+s:], p[s:s+sectorSize])
			}
		}
	}
	if err := h.d.do("write "+h.name, torn, full); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (h *memHandle) Datasync() error { return h.sync("datasync ") }
func (h *memHandle) Sync() error     { return h.sync("sync ") }

func (h *memHandle) sync(call string) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return h.d.do(call+h.name, nil, h.f.flush)
}

// flush makes what is visible durable.
func (f *memFile) flush() {
	f.durable = append(f.durable, make([]byte, len(f.visible)-len(f.durable))...)
	for _, r := range f.dirty {
		copy(f.durable[r[0]:r[1]], f.visible[r[0]:r[1]])
	}
	f.dirty = f.dirty[:0]
}

func (h *memHandle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return int64(len(h.f.visible)), nil
}

func (h *memHandle) Close() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.closed {
		return fs.ErrClosed
	}
	h.closed = true
	h.d.open--
	return nil
}
