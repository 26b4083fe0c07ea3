// SPDX-License-Identifier: Apache-2.0

package epochdir

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/internal/layout"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// TakenAfter returns the epochs between last and top that exist. A listing may be old, so it also looks up
// names, each only once, because a cache may remember that a name was free.
func TakenAfter(fsys vfs.FS, last, top cluster.Epoch) ([]cluster.Epoch, error) {
	var more []cluster.Epoch
	for e := last + 1; e < top; e++ {
		_, err := fsys.Lstat(layout.EpochDir(e))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		more = append(more, e)
	}
	listed, err := List(fsys)
	for _, e := range listed {
		if e > last && e < top && !slices.Contains(more, e) {
			more = append(more, e)
		}
	}
	slices.Sort(more)
	return more, err
}

// State is the state of a term as its epoch's directory shows it.
type State struct {
	Epoch cluster.Epoch
	// FenceErr is why the fence cannot be read, nil if it can. With an error START is unknown.
	FenceErr error
	Fenced   bool
	Flag            // the claim that set the fence, if the flag is valid
	ByErr    bool   // the fence is set, and its flag is not valid
	Start    *Start // nil if it is absent or unknown
	StartErr error  // not nil if START is neither absent nor valid, or was lost
	Claim    Claim
	ClaimErr error // why claim.json cannot be read, nil if it can
}

// Unknown reports whether the directory does not show whether this term started.
func (e *State) Unknown() bool { return e.FenceErr != nil || e.StartErr != nil }

// Before returns the epoch that must exist below this one. A recovery leaves
// numbers out, and its claim names the epoch that it follows. Servers that claimed
// while the recovery was paused have numbers between the two.
func (e *State) Before() cluster.Epoch {
	if e.ClaimErr == nil && e.Claim.Recovered != nil {
		return e.Claim.Recovered.Follows
	}
	return e.Epoch - 1
}

// Survey reads the fence and claim of every epoch, oldest first.
func Survey(ctx context.Context, fsys vfs.FS) ([]State, error) {
	taken, err := List(fsys)
	if err != nil {
		return nil, err
	}
	all := make([]State, 0, len(taken))
	for _, e := range taken {
		st := State{Epoch: e}
		if err := st.Read(ctx, fsys); err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}

// Read reads the fence and the claim of e.Epoch into e. It returns an error only if ctx has ended: its cause.
func (e *State) Read(ctx context.Context, fsys vfs.FS) error {
	if err := e.readFence(ctx, fsys); err != nil {
		return err
	}
	b, err := vfs.ReadFile(fsys, layout.EpochDir(e.Epoch)+"/"+layout.ClaimName, vfs.FlagRead)
	if err == nil {
		err = json.Unmarshal(b, &e.Claim)
	}
	e.ClaimErr = err
	return nil
}

// readFence reads the flag and START. It returns an error only if ctx has ended: its cause.
func (e *State) readFence(ctx context.Context, fsys vfs.FS) error {
	f, _, err := OpenFence(fsys, e.Epoch, vfs.FlagRead)
	if err != nil {
		e.FenceErr = err
		return nil
	}
	defer f.Close() //nolint:errcheck // opened for reading
	block := vfs.AlignedBuffer(vfs.BlockSize)
	if err := vfs.ReadBlock(f, block, 0); err != nil {
		e.FenceErr = fmt.Errorf("read the fence flag: %w", err)
		return nil
	}
	x, ok := DecodeFlag(block)
	e.Fenced, e.Flag, e.ByErr = !vfs.AllZero(block), x, !ok && !vfs.AllZero(block)
	e.Start, e.StartErr = ReadProvenStart(ctx, fsys, f, e.Epoch)
	return context.Cause(ctx)
}

// ClaimNonce returns the nonce of claim.json, zeros if it could not be read.
func (e *State) ClaimNonce() (n Nonce) {
	if b, err := hex.DecodeString(e.Claim.Nonce); err == nil && len(b) == len(n) {
		copy(n[:], b)
	}
	return n
}

// TakenTwice looks at the fences of the newest epochs, down to the newest that started. It returns a sentence for each
// fence whose flag names an epoch that exists with another nonce: the directory that had set the fence was
// removed, and its number was taken again.
func TakenTwice(epochs []State) (twice []string) {
	byNumber := map[cluster.Epoch]*State{}
	for i := range slices.Backward(epochs) {
		e := &epochs[i]
		byNumber[e.Epoch] = e
		other := byNumber[e.By]
		if e.By > e.Epoch && other != nil && other.ClaimErr == nil && other.ClaimNonce() != e.Flag.Nonce {
			twice = append(twice, fmt.Sprintf("the fence of %s was set by another %s than the one that is there: that one is gone, and its number was taken again; %s", layout.EpochDir(e.Epoch), layout.EpochDir(e.By), olderRecovery))
		}
		if e.Start != nil {
			break
		}
	}
	return twice
}

// NonceFits reports whether START and claim.json, as far as they can be read, have the same nonce.
func (e *State) NonceFits() bool {
	return e.Start == nil || e.ClaimErr != nil || e.Epoch == 0 || e.Claim.Nonce == hex.EncodeToString(e.Start.Nonce[:])
}

// HeldClaims returns the paths of the claim.json files that running processes have locked: that of the primary
// and those of prepared claims. It locks each free one for a moment, which
// disturbs no server.
func HeldClaims(fsys vfs.FS, epochs []State) (held []string, err error) {
	var names []string
	for i := range epochs {
		names = append(names, layout.EpochDir(epochs[i].Epoch)+"/"+layout.ClaimName)
	}
	entries, err := fsys.ReadDir(layout.ServersDir)
	if err != nil {
		return nil, err
	}
	for _, x := range entries {
		if strings.HasSuffix(x.Name, layout.ClaimSuffix) {
			names = append(names, layout.ServersDir+"/"+x.Name+"/"+layout.ClaimName)
		}
	}
	for _, name := range names {
		l, err := fsys.TryLock(name)
		if errors.Is(err, vfs.ErrLocked) {
			held = append(held, name)
		}
		if err != nil {
			continue // a missing file is no sign of a running process
		}
		if err := l.Unlock(); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// List returns the epochs that exist, in order. It sorts them as numbers, because names sort like numbers
// only up to ten digits, and a recovery skips billions.
func List(fsys vfs.FS) ([]cluster.Epoch, error) {
	entries, err := fsys.ReadDir(layout.EpochsDir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", layout.EpochsDir, err)
	}
	var all []cluster.Epoch
	for _, x := range entries {
		if e, ok := layout.ParseEpoch(x.Name); ok {
			all = append(all, e)
		}
	}
	slices.Sort(all)
	return all, nil
}
