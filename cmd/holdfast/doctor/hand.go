// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-lock/holdfast/shared/volume"
)

// hand is one mount of the directory on trial and what can be asked of it. A
// probe holds two hands, gives one something to do and asks the other what it sees.
//
// Every name is below the directory that was made for the trial.
type hand interface {
	// do makes one call. What the filesystem answered is in the reply; the error
	// is the hand's own, a connection that broke, and ends the trial.
	do(ctx context.Context, c call) (reply, error)
	// distance is how long a call is on its way, so that two hands can act at one moment.
	distance() time.Duration
	// String says for people where the hand is.
	String() string
}

// op is what a hand is asked to do.
type op string

// The operations. Those in the second group are the product's own reign, in a
// volume that was made for the trial.
const (
	opMkdir   op = "mkdir"   // Name
	opPut     op = "put"     // Name, Data: a new file, synced; reply: Inode
	opGet     op = "get"     // Name: past the caches; reply: Data, Inode
	opLook    op = "look"    // Name: through the caches; reply: Data
	opPrime   op = "prime"   // Name: look, and keep the descriptor; a name that is missing is no error
	opList    op = "list"    // Name: fills the cache of a directory
	opStat    op = "stat"    // Name; reply: Inode
	opRename  op = "rename"  // Name, To
	opLink    op = "link"    // Name, To
	opRemove  op = "remove"  // Name
	opReplace op = "replace" // Name, Data: as views are published
	opPoke    op = "poke"    // Name, Data, Offset: as a protected file is written
	opLock    op = "lock"    // Name
	opUnlock  op = "unlock"  // Name
	opVictim  op = "victim"  // Name: a process that holds the lock
	opKill    op = "kill"    // that process
	opNothing op = "nothing" // measures the way

	opInit   op = "init"   // reply: Data, the cluster ID
	opOpen   op = "open"   // Number: the server; reply: Data, the cluster ID
	opClaim  op = "claim"  // reply: Number, the epoch
	opSpoil  op = "spoil"  // fills the caches with everything that the newest reign wrote
	opFence  op = "fence"  // fences the older reigns; reply: Number, the epoch of the one that had started
	opAdopt  op = "adopt"  // scan, adopt, START; reply: Number, the LSN
	opAppend op = "append" // one record; reply: Number, its LSN
	opCheck  op = "check"
	opEnd    op = "end" // the reign, as when its last writer has ended
)

func ops() []op {
	return []op{
		opMkdir, opPut, opGet, opLook, opPrime, opList, opStat, opRename, opLink, opRemove, opReplace, opPoke, opLock, opUnlock, opVictim, opKill, opNothing,
		opInit, opOpen, opClaim, opSpoil, opFence, opAdopt, opAppend, opCheck, opEnd,
	}
}

// call is one request to a hand.
type call struct {
	Op     op     `json:"op"`
	Name   string `json:"name,omitempty"`
	To     string `json:"to,omitempty"`
	Data   []byte `json:"data,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Number uint64 `json:"number,omitempty"`
}

func (c call) String() string {
	return strings.TrimSpace(strings.Join([]string{string(c.Op), c.Name, c.To}, " "))
}

const (
	// maxData bounds what is written or read by one call, in bytes.
	maxData = 8 << 10
	// maxOffset bounds where, in bytes.
	maxOffset = 1 << 20
	// maxName bounds a name, in bytes.
	maxName = 100
	// nameParts is how deep a name may lie.
	nameParts = 3
)

// validate refuses what no probe asks for. A hand that listens on the network
// has nothing else to protect it.
func (c call) validate() error {
	if !slices.Contains(ops(), c.Op) {
		return fmt.Errorf("unknown operation %q", c.Op)
	}
	for _, n := range []string{c.Name, c.To} {
		if n != "" && !validName(n) {
			return fmt.Errorf("%s: bad name %q", c.Op, n)
		}
	}
	if len(c.Data) > maxData || c.Offset < 0 || c.Offset > maxOffset {
		return fmt.Errorf("%s: %d bytes at %d are too many or too far", c.Op, len(c.Data), c.Offset)
	}
	return nil
}

func validName(n string) bool {
	return len(n) <= maxName && fs.ValidPath(n) && n != "." && strings.Count(n, "/") < nameParts &&
		!strings.ContainsFunc(n, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-._", r)
		})
}

var errNotTrial = errors.New("not the name of a directory that doctor makes")

// checkTrialDir refuses every name but those of directories that doctor makes.
func checkTrialDir(name string) error {
	if ok, err := regexp.MatchString(`^\.holdfast-doctor-[0-9]{1,20}$`, name); err != nil || !ok {
		return fmt.Errorf("%q: %w", name, errNotTrial)
	}
	return nil
}

// outcome is what the filesystem answered.
type outcome string

// The outcomes that probes tell apart.
const (
	done    outcome = "done"
	exists  outcome = "exists"  // the name is taken
	missing outcome = "missing" // the name leads nowhere
	locked  outcome = "locked"  // by another process
	fenced  outcome = "fenced"  // by a later reign
	unable  outcome = "unable"  // this hand cannot try it
	failed  outcome = "failed"  // anything else; Error says what
)

// outcomeOf sorts an error.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, volume.ErrFenced):
		return fenced
	case errors.Is(err, volume.ErrLocked):
		return locked
	case errors.Is(err, errNoCrew):
		return unable
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		return exists
	case errors.Is(err, fs.ErrNotExist):
		return missing
	default:
		return failed
	}
}

// reply is what came of a call.
type reply struct {
	Outcome outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"` // set unless done
	Data    []byte  `json:"data,omitempty"`
	Inode   uint64  `json:"inode,omitempty"`
	Number  uint64  `json:"number,omitempty"`
	// Nanos is how long the filesystem took, without the way to the hand.
	Nanos int64 `json:"nanos"`
}

func (r reply) took() time.Duration { return time.Duration(r.Nanos) }
