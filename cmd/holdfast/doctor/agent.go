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
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// mountAgent executes calls on one mount of the directory under test. A probe has two agents:
// it changes something through one and reads it through the other.
//
// All names are relative to the directory that was made for the trial.
type mountAgent interface {
	// do makes one call. The filesystem's answer, also an error, is in the reply. The returned error
	// is the agent's own, such as a broken connection, and ends the trial.
	do(ctx context.Context, c call) (reply, error)
	// distance returns how long a call takes to reach the agent, so that two agents can act at the
	// same moment.
	distance() time.Duration
	// String describes, for people, where the agent is.
	String() string
}

// op is the name of an operation of an agent, as it is sent between two hosts.
type op string

// The operations, with the fields of the call and the reply that they use. Those in the second
// group run a term with the product's own code, in a volume that was made for the trial.
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
	opPoke    op = "poke"    // Name, Data, Offset: writes as to a protected file
	opLock    op = "lock"    // Name
	opUnlock  op = "unlock"  // Name
	opVictim  op = "victim"  // Name: a process that holds the lock
	opKill    op = "kill"    // that process
	opNothing op = "nothing" // measures the round trip

	opInit       op = "init"   // reply: Data, the cluster ID
	opOpen       op = "open"   // Number: the server; reply: Data, the cluster ID
	opClaim      op = "claim"  // reply: Number, the epoch
	opWarmCaches op = "spoil"  // fills the caches with everything that the newest term wrote
	opFence      op = "fence"  // fences the older terms; reply: Number, the epoch of the one that had started
	opAdopt      op = "adopt"  // scan, adopt, START; reply: Number, the LSN
	opAppend     op = "append" // one record; reply: Number, its LSN
	opCheck      op = "check"
	opEnd        op = "end" // the term, as when its last writer has ended
)

func ops() []op {
	return []op{
		opMkdir, opPut, opGet, opLook, opPrime, opList, opStat, opRename, opLink, opRemove, opReplace, opPoke, opLock, opUnlock, opVictim, opKill, opNothing,
		opInit, opOpen, opClaim, opWarmCaches, opFence, opAdopt, opAppend, opCheck, opEnd,
	}
}

// locks reports whether an operation mainly takes a lock.
func (o op) locks() bool { return o == opLock || o == opVictim || o == opOpen }

// call is one request to an agent.
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
	// maxData bounds the data of one call, in bytes.
	maxData = 8 << 10
	// maxOffset bounds the offset of one call, in bytes.
	maxOffset = 1 << 20
	// maxName bounds a name, in bytes.
	maxName = 100
	// nameParts bounds the elements of a name.
	nameParts = 3
)

// validate refuses calls that no probe makes. An agent that listens on the network
// has no other protection.
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

// checkTrialDir refuses all names but those of directories that doctor makes.
func checkTrialDir(name string) error {
	if ok, err := regexp.MatchString(`^\.holdfast-doctor-[0-9]{1,20}$`, name); err != nil || !ok {
		return fmt.Errorf("%q: %w", name, errNotTrial)
	}
	return nil
}

// outcome classifies the filesystem's answer.
type outcome string

// The outcomes that probes tell apart.
const (
	done    outcome = "done"
	exists  outcome = "exists"  // the name is taken
	missing outcome = "missing" // there is no such name
	locked  outcome = "locked"  // by another process
	fenced  outcome = "fenced"  // by a later term
	unable  outcome = "unable"  // this agent does not support it
	failed  outcome = "failed"  // any other error, which is in Error
)

// outcomeOf classifies an error of the filesystem; nil is done.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, volume.ErrFenced):
		return fenced
	case errors.Is(err, vfs.ErrLocked):
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

// reply is the result of a call.
type reply struct {
	Outcome outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"` // set unless done
	Data    []byte  `json:"data,omitempty"`
	Inode   uint64  `json:"inode,omitempty"`
	Number  uint64  `json:"number,omitempty"`
	// Nanos is how long the filesystem took, in nanoseconds, without the time to reach the agent.
	Nanos int64 `json:"nanos"`
}

func (r reply) took() time.Duration { return time.Duration(r.Nanos) }
