// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/wal"
)

// ErrServersRun says that a server uses the volume.
var ErrServersRun = errors.New("servers are running")

// epochState is what one epoch's directory says of its reign.
type epochState struct {
	epoch cluster.Epoch
	// fenceErr says why the fence cannot be read; START is unknown then.
	fenceErr error
	fenced   bool
	flag            // who set the fence, as far as the flag says
	byErr    bool   // it is set, and its flag does not say by whom
	start    *start // nil: absent or unknown
	startErr error  // START is neither absent nor valid, or lost
	claim    claimFile
	claimErr error
}

// unknown says that nobody can tell any more whether this reign started.
func (e *epochState) unknown() bool { return e.fenceErr != nil || e.startErr != nil }

// before is the epoch that must be there before this one: a recovery leaves
// numbers out, and says in its claim which was the last before. Whoever claimed
// while the recovery slept lies between.
func (e *epochState) before() cluster.Epoch {
	if e.claimErr == nil && e.claim.Recovered != nil {
		return e.claim.Recovered.Follows
	}
	return e.epoch - 1
}

// surveyEpochs reads the fence and claim of every epoch, oldest first. It only reads.
func surveyEpochs(ctx context.Context, fsys FS) ([]epochState, error) {
	taken, err := listEpochs(fsys)
	if err != nil {
		return nil, err
	}
	all := make([]epochState, 0, len(taken))
	for _, e := range taken {
		st := epochState{epoch: e}
		if err := st.read(ctx, fsys); err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}

// read reads fence and claim. Its error is only that of ctx.
func (e *epochState) read(ctx context.Context, fsys FS) error {
	if err := e.readFence(ctx, fsys); err != nil {
		return err
	}
	b, err := readFile(fsys, epochDir(e.epoch)+"/"+claimName, FlagRead)
	if err == nil {
		err = json.Unmarshal(b, &e.claim)
	}
	e.claimErr = err
	return nil
}

// readFence reads flag and START. Its error is only that of ctx.
func (e *epochState) readFence(ctx context.Context, fsys FS) error {
	f, _, err := openFence(fsys, e.epoch, FlagRead)
	if err != nil {
		e.fenceErr = err
		return nil
	}
	defer f.Close() //nolint:errcheck // opened for reading
	block := AlignedBuffer(BlockSize)
	if err := readBlock(f, block, 0); err != nil {
		e.fenceErr = fmt.Errorf("read the fence flag: %w", err)
		return nil
	}
	x, ok := decodeFlag(block)
	e.fenced, e.flag, e.byErr = !allZero(block), x, !ok && !allZero(block)
	e.start, e.startErr = readProvenStart(ctx, fsys, f, e.epoch)
	return context.Cause(ctx)
}

// claimNonce is that of claim.json, zero where it cannot be read.
func (e *epochState) claimNonce() (n Nonce) {
	if b, err := hex.DecodeString(e.claim.Nonce); err == nil && len(b) == len(n) {
		copy(n[:], b)
	}
	return n
}

// takenTwice says which epochs, of those that decide, are there and are not the ones that
// set a fence below: they were removed, and their numbers taken again.
func takenTwice(epochs []epochState) (twice []string) {
	byNumber := map[cluster.Epoch]*epochState{}
	for i := range slices.Backward(epochs) {
		e := &epochs[i]
		byNumber[e.epoch] = e
		other := byNumber[e.by]
		if e.by > e.epoch && other != nil && other.claimErr == nil && other.claimNonce() != e.flag.nonce {
			twice = append(twice, fmt.Sprintf("the fence of %s was set by another %s than the one that is there: that one is gone, and its number was taken again; %s", epochDir(e.epoch), epochDir(e.by), olderRecovery))
		}
		if e.start != nil {
			break
		}
	}
	return twice
}

// nonceFits says that START and claim.json are of one claim.
func (e *epochState) nonceFits() bool {
	return e.start == nil || e.claimErr != nil || e.epoch == 0 || e.claim.Nonce == hex.EncodeToString(e.start.nonce[:])
}

// whoRuns names the claims that a living process holds: that of the primary and
// those that servers keep prepared. It holds each free one for a moment, which
// disturbs nobody.
func whoRuns(fsys FS, epochs []epochState) (held []string, err error) {
	var names []string
	for i := range epochs {
		names = append(names, epochDir(epochs[i].epoch)+"/"+claimName)
	}
	entries, err := fsys.ReadDir(serversDir)
	if err != nil {
		return nil, err
	}
	for _, x := range entries {
		if strings.HasSuffix(x.Name, claimSuffix) {
			names = append(names, serversDir+"/"+x.Name+"/"+claimName)
		}
	}
	for _, name := range names {
		l, err := fsys.TryLock(name)
		if errors.Is(err, ErrLocked) {
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

// viewHead reads the first line of a view or of a checkpoint's file.
func viewHead(fsys FS, name string) (head, error) {
	f, err := fsys.Open(name, FlagRead)
	if err != nil {
		return head{}, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	return readHead(bufio.NewReader(io.NewSectionReader(f, 0, 64<<10)))
}

// highest is the largest LSN and epoch that anything on the volume speaks of.
type highest struct {
	lsn   cluster.LSN
	epoch cluster.Epoch
}

func (h *highest) saw(e cluster.Epoch, lsn cluster.LSN) {
	h.lsn, h.epoch = max(h.lsn, lsn), max(h.epoch, e)
}

// surveyHighest looks at everything that names an LSN or an epoch. proven is
// what was committed for sure: flags are set by claimed epochs, views and witnesses show
// what was checked.
func (v *Volume) surveyHighest(epochs []epochState, told []witness) (seen, proven highest) {
	for i := range epochs {
		e := &epochs[i]
		proven.saw(max(e.epoch, e.by), 0)
		if e.start != nil {
			seen.saw(0, e.start.end.LSN)
		}
		entries, err := v.fs.ReadDir(epochDir(e.epoch))
		if err != nil {
			continue // it is reported where it matters
		}
		for _, x := range entries {
			if lsn, ok := parseCheckpoint(x.Name); ok {
				seen.saw(0, lsn)
			}
			if first, ok := wal.ParseSegmentName(x.Name); ok {
				seen.saw(0, first-1)
			}
		}
	}
	for _, name := range []string{stateName, requestsName} {
		if h, err := viewHead(v.fs, name); err == nil && h.Cluster == v.cluster.ID {
			proven.saw(h.Epoch, h.LSN)
		}
	}
	for _, w := range told {
		proven.saw(w.epoch, w.lsn)
	}
	seen.saw(proven.epoch, proven.lsn)
	return seen, proven
}

// unfinished says what recoveries knew to be missing that were interrupted before
// they began, unless a server began behind what they saw.
func unfinished(epochs []epochState, seen *highest) (missing []string) {
	began := cluster.Epoch(0)
	for i := range epochs {
		if epochs[i].start != nil {
			began = epochs[i].epoch
		}
	}
	for i := range epochs {
		e := &epochs[i]
		if e.epoch <= began || e.claimErr != nil || e.claim.Recovered == nil || e.claim.Recovered.Follows < began {
			continue
		}
		note := e.claim.Recovered
		seen.saw(note.SeenEpoch, note.SeenLSN)
		if !note.Complete {
			missing = append(missing, fmt.Sprintf("the recovery of %s found that something is missing, and was interrupted", epochDir(e.epoch)))
		}
	}
	return missing
}
