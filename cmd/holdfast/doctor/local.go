// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// localAgent is an agent in this process. It belongs to one goroutine at a time.
//
// It accesses the directory as servers do, through vfs.FS, so that the trial tests the
// servers' own calls with their own flags.
type localAgent struct {
	fs    vfs.FS // its root is the directory of the trial
	label string
	crew  crew      // starts processes that hold locks until they are killed; nil for none
	root  io.Closer // of fs, closed last; nil for none

	kept   []vfs.File // open since they were primed, the oldest first
	pokes  map[string]vfs.File
	locks  map[string]vfs.Lock
	victim io.Closer // kills it
	term   *trialTerm
}

// crew is a function that starts a process which takes the lock of a file and holds it. Close
// kills the process with SIGKILL and waits for its end.
type crew func(ctx context.Context, name string) (io.Closer, error)

// errNoCrew reports that this agent cannot start a process to be killed.
var errNoCrew = errors.New("no process to be killed can be started here")

func newLocalAgent(fsys vfs.FS, label string, c crew) *localAgent {
	return &localAgent{fs: fsys, label: label, crew: c, pokes: map[string]vfs.File{}, locks: map[string]vfs.Lock{}}
}

func (h *localAgent) String() string { return h.label }

func (h *localAgent) distance() time.Duration { return 0 }

func (h *localAgent) do(ctx context.Context, c call) (reply, error) {
	if err := c.validate(); err != nil {
		return reply{Outcome: failed, Error: err.Error()}, nil
	}
	var r reply
	began := time.Now()
	err := h.act(ctx, c, &r)
	r.Nanos = time.Since(began).Nanoseconds()
	r.Outcome = outcomeOf(err)
	if err != nil {
		r.Error = err.Error()
	}
	return r, nil
}

func (h *localAgent) act(ctx context.Context, c call, r *reply) (err error) {
	switch c.Op {
	case opMkdir:
		return h.fs.Mkdir(c.Name)
	case opPut:
		r.Inode, err = h.put(c.Name, c.Data)
	case opGet:
		r.Data, r.Inode, err = h.read(c.Name, vfs.FlagDirect)
	case opLook:
		r.Data, r.Inode, err = h.read(c.Name, vfs.FlagRead)
	case opPrime:
		return h.prime(c.Name)
	case opList:
		_, err = h.fs.ReadDir(c.Name)
	case opStat:
		var info vfs.Info
		info, err = h.fs.Lstat(c.Name)
		r.Inode = info.Inode
	case opRename:
		return h.fs.Rename(c.Name, c.To)
	case opLink:
		return h.fs.Link(c.Name, c.To)
	case opRemove:
		return h.fs.Remove(c.Name)
	case opReplace:
		return h.fs.Replace(c.Name, func(w io.Writer) error { _, err := w.Write(c.Data); return err })
	case opPoke:
		return h.poke(c.Name, c.Data, c.Offset)
	case opLock, opUnlock, opVictim, opKill:
		return h.lock(ctx, c)
	case opNothing:
	default:
		return h.actInTerm(ctx, c, r)
	}
	return err
}

// put makes a new file with this content, durably.
func (h *localAgent) put(name string, data []byte) (inode uint64, err error) {
	f, err := h.fs.Open(name, vfs.FlagCreate)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	return info.Inode, errors.Join(err, h.fs.SyncDir(path.Dir(name)))
}

// read reads a small file, past the caches or through them.
func (h *localAgent) read(name string, flag vfs.Flag) (data []byte, inode uint64, err error) {
	f, err := h.fs.Open(name, flag)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = readSmall(f)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	return data, info.Inode, err
}

func readSmall(f vfs.File) ([]byte, error) {
	b := vfs.AlignedBuffer(maxData)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// maxKept bounds the descriptors that priming keeps open.
const maxKept = 32

// prime fills the caches as other programs on a host do: it looks a name up, reads its
// attributes and its content through the caches, and keeps it open.
func (h *localAgent) prime(name string) error {
	info, err := h.fs.Lstat(name)
	if err != nil || info.Type != vfs.TypeFile {
		return missingIsFine(err)
	}
	f, err := h.fs.Open(name, vfs.FlagRead)
	if err != nil {
		return missingIsFine(err)
	}
	h.kept = append(h.kept, f)
	if _, err := readSmall(f); err != nil {
		return missingIsFine(err)
	}
	if len(h.kept) > maxKept {
		oldest := h.kept[0]
		h.kept = slices.Delete(h.kept, 0, 1)
		_ = oldest.Close() // as in close
	}
	return nil
}

// missingIsFine returns nil for a missing name, else err. It is for calls that only fill caches:
// caches remember a missing name, too.
func missingIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// poke writes as a server writes to a protected file: through a descriptor that
// stays open, synchronously, never in append mode.
func (h *localAgent) poke(name string, data []byte, off int64) error {
	f := h.pokes[name]
	if f == nil {
		var err error
		if f, err = h.fs.Open(name, vfs.FlagWrite|vfs.FlagDsync); err != nil {
			return err
		}
		h.pokes[name] = f
	}
	_, err := f.WriteAt(data, off)
	return err
}

func (h *localAgent) lock(ctx context.Context, c call) (err error) {
	switch c.Op {
	case opLock:
		if h.locks[c.Name] != nil {
			return fmt.Errorf("%s: held already", c.Name)
		}
		l, err := h.fs.TryLock(c.Name)
		if err == nil {
			h.locks[c.Name] = l
		}
		return err
	case opUnlock:
		l := h.locks[c.Name]
		if l == nil {
			return fmt.Errorf("%s: not held", c.Name)
		}
		delete(h.locks, c.Name)
		return l.Unlock()
	case opVictim:
		if h.crew == nil {
			return errNoCrew
		}
		if h.victim != nil {
			return errors.New("there is a victim already")
		}
		h.victim, err = h.crew(ctx, c.Name)
		return err
	default:
		if h.victim == nil {
			return errors.New("there is no victim")
		}
		v := h.victim
		h.victim = nil
		return v.Close()
	}
}

// close releases the lock, and closes all files and the root.
func (h *localAgent) close() error {
	var errs []error
	for _, f := range h.kept {
		_ = f.Close() // only read, and the file may have been removed
	}
	for _, f := range h.pokes {
		errs = append(errs, f.Close())
	}
	for _, l := range h.locks {
		errs = append(errs, l.Unlock())
	}
	if h.victim != nil {
		errs = append(errs, h.victim.Close())
	}
	if h.term != nil {
		errs = append(errs, h.term.close())
	}
	if h.root != nil {
		errs = append(errs, h.root.Close())
	}
	return errors.Join(errs...)
}
