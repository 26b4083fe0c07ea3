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

// History records the operations of clients on locks with their answers, for porcupine. It is
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
	// AcquireCall requests a lock. A wait that reached its deadline is answered
	// with Held, like a try.
	AcquireCall struct {
		Lock   cluster.LockName
		Shared bool // with others
		Try    bool // do not wait
		// Weight is how many of Limit permits are asked for, 0 = 1; Limit 0 = the lock has none.
		Limit, Weight uint32
		// TTL is that of the lease; 0 = it cannot end during the history.
		TTL time.Duration
		// Slot is what the lock is wanted for, once: the number in its text; 0 = none.
		Slot int
	}
	// ReleaseCall releases a lock.
	ReleaseCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// DoneCall releases a lock, and says that the slot which it was acquired for is done.
	DoneCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// RenewCall extends a lease. Not all renewals need be recorded: the
	// model never requires that a lease has ended.
	RenewCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// DowngradeCall turns an exclusive lock into a shared one. A repeat succeeds too.
	DowngradeCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// ShowCall asks the primary for all holders of a lock and the length of its file.
	ShowCall struct{ Lock cluster.LockName }
	// AppendCall appends to the lock's file. Data is different in each.
	AppendCall struct {
		Lock  cluster.LockName
		Token cluster.Token
		Data  []byte
		At    *int64 // append only there; nil = at the end
	}
	// BreakCall ends a grant on behalf of an operator; token 0 = the live one, if it is
	// the only one.
	BreakCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// ReadCall reads the lock's whole file: through the service, or from the volume after the last
	// append.
	ReadCall struct{ Lock cluster.LockName }
)

// Reply is the answer of any call. A call without an answer may take effect at any later
// time, or never; an acquire only as long as HistoryOptions.Linger.
type Reply struct {
	// Token is the granted one, or the live one that a ShowCall returned; 0 = free. Others are the
	// further live tokens that a ShowCall returned.
	Token  cluster.Token
	Others []cluster.Token
	// Held is true if another client holds the lock.
	Held bool
	// OtherLimit is true if an acquire was refused because others use the lock with another limit, or without one.
	OtherLimit bool
	// Refused is true if the service refused the token, or found nothing to
	// break. A request that a client does not send because it lost its lease is not a call.
	Refused bool
	// Done is true if an acquire was refused because its slot, or a later one, is done.
	Done    bool
	Unknown bool
	// Shared is true if the lock is shared: a ShowCall found it so; an append was refused because of
	// that; a break without a token was refused because there are several holders; a downgrade was
	// refused because the token has permits.
	Shared bool
	// Limit is how many permits a ShowCall found, and Weights how many Token and each of Others have.
	Limit   uint32
	Weights []uint32
	// Mismatch is true if the file does not end at the offset that an append expected.
	Mismatch bool
	// Offset is where an append went, or with Mismatch where the file ends.
	Offset int64
	// Length is that of the file, for ShowCall and ReadCall; -1 = a ShowCall without it.
	Length int64
	// Sum is the CRC-32C of what ReadCall read.
	Sum uint32
}

// timedCall is a call as the model sees it: with the nanoseconds, since the
// history began, between which it took effect.
type timedCall struct {
	call     any
	at, back int64
	// rival is true for an acquire during which an exclusive request may have waited.
	rival bool
	// left is when the caller went away, with an answer or not, and over, of an acquire without
	// one, when nothing can be left of it any more; 0 = never.
	left, over int64
}

// tokens returns all tokens that a ShowCall returned.
func (r Reply) tokens() []cluster.Token {
	if r.Token == 0 {
		return nil
	}
	return append([]cluster.Token{r.Token}, r.Others...)
}

// mode is how a ShowCall found the lock.
func (r Reply) mode() mode { return mode{r.Shared, r.Limit} }

// weight is how many permits the holder of tokens()[i] has.
func (r Reply) weight(i int) uint32 {
	if i < len(r.Weights) {
		return r.Weights[i]
	}
	return 0
}

// never is a time that does not come.
const never = int64(math.MaxInt64)

// NewHistory returns an empty history, whose times count from now.
func NewHistory() *History { return &History{began: time.Now()} }

// Begin records that a client calls; the returned function records the answer. After a call
// without an answer the client gets another number, because porcupine permits no two calls of one
// client at the same time.
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

// Violation records an answer that no client may get.
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

// Operations returns all operations so far, and how many of them had no answer.
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
	case DoneCall:
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
