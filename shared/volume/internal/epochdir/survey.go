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

// TakenAfter lists the epochs between last and top. A listing may be old, so names
// are looked up as well, each once, since a cache may remember that it was free.
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

// State is what one epoch's directory says of its term.
type State struct {
	Epoch cluster.Epoch
	// FenceErr says why the fence cannot be read; START is unknown then.
	FenceErr error
	Fenced   bool
	Flag            // who set the fence, as far as the flag says
	ByErr    bool   // the fence is set, and its flag does not say by whom
	Start    *Start // nil: absent or unknown
	StartErr error  // START is neither absent nor valid, or lost
	Claim    Claim
	ClaimErr error // why claim.json cannot be read
}

// Unknown reports whether what is left does not show whether this term started.
func (e *State) Unknown() bool { return e.FenceErr != nil || e.StartErr != nil }

// Before returns the epoch that must be there before this one: a recovery leaves
// numbers out, and its claim names the last before. Servers that claimed
// while the recovery slept have numbers between.
func (e *State) Before() cluster.Epoch {
	if e.ClaimErr == nil && e.Claim.Recovered != nil {
		return e.Claim.Recovered.Follows
	}
	return e.Epoch - 1
}

// Survey reads the fence and claim of every epoch, oldest first. It only reads.
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

// Read reads the fence and the claim of e.Epoch into e. It fails only with the cause of ctx.
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

// readFence reads flag and START. Its error is only that of ctx.
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

// ClaimNonce returns the nonce of claim.json, zero if that could not be read.
func (e *State) ClaimNonce() (n Nonce) {
	if b, err := hex.DecodeString(e.Claim.Nonce); err == nil && len(b) == len(n) {
		copy(n[:], b)
	}
	return n
}

// TakenTwice returns a sentence for each epoch, of those that decide, that is there and is not the
// one that set a fence below: that one was removed, and its number taken again.
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

// NonceFits reports whether START and claim.json are of one claim.
func (e *State) NonceFits() bool {
	return e.Start == nil || e.ClaimErr != nil || e.Epoch == 0 || e.Claim.Nonce == hex.EncodeToString(e.Start.Nonce[:])
}

// HeldClaims returns the paths of the claims that a running process has locked: that of the primary
// and those that servers keep prepared. It locks each free one for a moment, which
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
			continue // what is missing or no file is no sign of life
		}
		if err := l.Unlock(); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// List lists the numbers that are taken, in order. Names sort like numbers
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
