// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// History is what clients did with locks and were told, for porcupine. It is
// safe for use by several goroutines.
type History struct {
	began time.Time
	mu    struct {
		sync.Mutex
		operations []porcupine.Operation
		unknown    int
		bad        []string
	}
}

// The operations of a history. Each concerns one lock, and at most one file is
// appended to under it.
type (
	// AcquireCall asks for a lock. A wait that ran into its deadline is answered
	// with Held, like a try.
	AcquireCall struct {
		Lock   cluster.LockName
		Shared bool // with others
		Try    bool // do not wait
		// TTL of the lease; 0 says that it cannot end during the history.
		TTL time.Duration
	}
	// ReleaseCall gives a lock back.
	ReleaseCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// RenewCall extends a lease. Renewals that nobody records do no harm: the
	// model never says that a lease must have ended.
	RenewCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// DowngradeCall lets others share a lock; to do so again is no refusal.
	DowngradeCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// ShowCall asks the primary who holds a lock, all of them, and how long its file is.
	ShowCall struct{ Lock cluster.LockName }
	// AppendCall appends to the lock's file. Data is different in each.
	AppendCall struct {
		Lock  cluster.LockName
		Token cluster.Token
		Data  []byte
		At    *int64 // append only there; nil = at the end
	}
	// BreakCall ends a grant on an operator's word; token 0 = whichever is live, if it is
	// the only one.
	BreakCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// ReadCall reads the lock's whole file: through the service, or from the volume, once
	// nobody appends any more.
	ReadCall struct{ Lock cluster.LockName }
)

// Reply answers every call. One without an answer may take effect at any later
// time, or never; an acquire as long as HistoryOptions.Linger says.
type Reply struct {
	// Token is the one granted, or the live one that was shown; 0 = free. Others share the
	// lock with it, as a ShowCall tells.
	Token  cluster.Token
	Others []cluster.Token
	// Held says that somebody else holds the lock.
	Held bool
	// Refused says that the service did not take the token, or found nothing to
	// break. What a client refuses to ask because it lost its lease is no call.
	Refused bool
	Unknown bool
	// Shared says that the lock is: of a ShowCall, how it is held; of an append, that its token
	// writes nothing; of a break without a token, that there are several to choose from.
	Shared bool
	// Mismatch says that the file does not end where an append expected.
	Mismatch bool
	// Offset is where an append went, or with Mismatch where the file ends.
	Offset int64
	// Length of the file, of ShowCall and ReadCall. A ShowCall that does not tell says -1.
	Length int64
	// Sum is the CRC-32C of what ReadCall read.
	Sum uint32
}

// timedCall is a call as the model sees it: with the nanoseconds, since the
// history began, between which it took effect.
type timedCall struct {
	call     any
	at, back int64
	// rival says of an acquire that somebody may have waited meanwhile to have the lock alone.
	rival bool
	// left is when the caller went away, with an answer or not, and over, of an acquire without
	// one, when nothing can be left of it any more; 0 = never.
	left, over int64
}

// tokens are all that a ShowCall told.
func (r Reply) tokens() []cluster.Token {
	if r.Token == 0 {
		return nil
	}
	return append([]cluster.Token{r.Token}, r.Others...)
}

// never is a time that does not come.
const never = int64(math.MaxInt64)

// NewHistory begins now.
func NewHistory() *History { return &History{began: time.Now()} }

// Begin notes that a client calls; the returned function notes the answer. A
// client that got no answer is somebody else from then on, for nobody can call twice at once.
func (h *History) Begin(client int, call any) (end func(Reply)) {
	at := int64(time.Since(h.began))
	return func(r Reply) {
		op := operation(client, call, at, int64(time.Since(h.began)), r)
		h.mu.Lock()
		defer h.mu.Unlock()
		if r.Unknown {
			h.mu.unknown++
		}
		h.mu.operations = append(h.mu.operations, op)
	}
}

// Violation notes an answer that no client may get.
func (h *History) Violation(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.bad = append(h.mu.bad, fmt.Sprintf(format, args...))
}

// bad returns what was noted with Violation.
func (h *History) bad() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.mu.bad)
}

// operation is one of porcupine's. A call without an answer lies at its beginning
// though its effect may come at any later time: the model remembers that it is
// out, so that porcupine need not try every place for it. Only an append, whose
// place in the file matters, may end at any time itself.
func operation(client int, call any, at, back int64, r Reply) porcupine.Operation {
	left := back
	if r.Unknown {
		back = at
		if _, is := call.(AppendCall); is {
			back = never
		}
	}
	return porcupine.Operation{ClientId: client, Input: timedCall{call: call, at: at, back: back, left: left}, Call: at, Output: r, Return: back}
}

// Operations are all so far, and how many of them had no answer.
func (h *History) Operations() (all []porcupine.Operation, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(all, h.mu.operations...), h.mu.unknown
}

// lockOf is the lock that an operation concerns.
func lockOf(op porcupine.Operation) cluster.LockName {
	switch call := op.Input.(timedCall).call.(type) {
	case AcquireCall:
		return call.Lock
	case ReleaseCall:
		return call.Lock
	case RenewCall:
		return call.Lock
	case DowngradeCall:
		return call.Lock
	case ShowCall:
		return call.Lock
	case AppendCall:
		return call.Lock
	case BreakCall:
		return call.Lock
	case ReadCall:
		return call.Lock
	default:
		return "" // one that the model refuses
	}
}

// partitionByLock splits a history, which is linearizable if each part is. The
// parts come in order of their names.
func partitionByLock(all []porcupine.Operation) (parts [][]porcupine.Operation) {
	byLock := map[cluster.LockName][]porcupine.Operation{}
	var names []cluster.LockName
	for _, op := range all {
		name := lockOf(op)
		if byLock[name] == nil {
			names = append(names, name)
		}
		byLock[name] = append(byLock[name], op)
	}
	slices.Sort(names)
	for _, name := range names {
		parts = append(parts, byLock[name])
	}
	return parts
}
