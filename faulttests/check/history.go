// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
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
	}
}

// The operations of a history.
type (
	AcquireCall struct {
		Lock cluster.LockName
		Try  bool // do not wait
	}
	ReleaseCall struct {
		Lock  cluster.LockName
		Token cluster.Token
	}
	// Reply answers both. A call without an answer returns at infinity.
	Reply struct {
		Token   cluster.Token // granted or released
		Held    bool          // somebody else holds it
		Unknown bool
	}
)

// NewHistory begins now.
func NewHistory() *History { return &History{began: time.Now()} }

// Begin notes that a client calls; the returned function notes the answer. A
// client that got no answer is somebody else from then on, for nobody can call twice at once.
func (h *History) Begin(client int, call any) (end func(Reply)) {
	at := time.Since(h.began)
	return func(r Reply) {
		back := int64(time.Since(h.began))
		if r.Unknown {
			back = math.MaxInt64
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if r.Unknown {
			h.mu.unknown++
		}
		h.mu.operations = append(h.mu.operations, porcupine.Operation{
			ClientId: client, Input: call, Call: int64(at), Output: r, Return: back,
		})
	}
}

// Operations are all so far, and how many of them had no answer.
func (h *History) Operations() (all []porcupine.Operation, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(all, h.mu.operations...), h.mu.unknown
}

// lockState is what the model knows of one lock.
type lockState struct {
	holder cluster.Token // 0 = free
	top    cluster.Token // the highest that was ever granted
	// ghost says that a client which got no answer may hold it: then it may
	// be free again at any time, because the library lets go of such a grant.
	ghost bool
}

// LockModel is a lock as its clients understand it, written without a look at
// locktable. Leases do not end in it.
func LockModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: partitionByLock,
		Init:      func() []any { return []any{lockState{}} },
		Step: func(state, in, out any) []any {
			s, r := state.(lockState), out.(Reply)
			switch call := in.(type) {
			case AcquireCall:
				return s.acquire(r)
			case ReleaseCall:
				return s.release(call.Token, r)
			default:
				return nil
			}
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return m.ToModel()
}

// acquire is every state that may follow.
func (s lockState) acquire(r Reply) []any {
	free := s.holder == 0 || s.ghost
	switch {
	case r.Unknown && free:
		return []any{s, lockState{top: s.top, ghost: true, holder: s.top + 1}}
	case r.Unknown:
		return []any{s}
	case r.Held && s.holder != 0:
		return []any{s}
	case !r.Held && free && r.Token > s.top:
		return []any{lockState{holder: r.Token, top: r.Token}}
	default:
		return nil
	}
}

func (s lockState) release(token cluster.Token, r Reply) []any {
	held := s.holder == token && !s.ghost
	switch {
	case r.Unknown && held:
		return []any{s, lockState{top: s.top}}
	case r.Unknown:
		return []any{s}
	case held:
		return []any{lockState{top: s.top}}
	default:
		return nil
	}
}

func partitionByLock(all []porcupine.Operation) [][]porcupine.Operation {
	byLock := map[cluster.LockName][]porcupine.Operation{}
	var names []cluster.LockName
	for _, op := range all {
		var name cluster.LockName
		switch call := op.Input.(type) {
		case AcquireCall:
			name = call.Lock
		case ReleaseCall:
			name = call.Lock
		}
		if byLock[name] == nil {
			names = append(names, name)
		}
		byLock[name] = append(byLock[name], op)
	}
	var parts [][]porcupine.Operation
	for _, name := range names {
		parts = append(parts, byLock[name])
	}
	return parts
}
