// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Outcome answers a request. Fields that do not concern the answer are zero.
type Outcome struct {
	Status  cluster.Status
	Client  cluster.ClientID
	Request cluster.RequestID
	LSN     cluster.LSN   // of the record that decided the request; 0 for refusals
	Epoch   cluster.Epoch // of that record

	Lock  cluster.LockName
	Token cluster.Token
	TTL   time.Duration // of a live grant. Of a repeat it is an upper bound: what remains is known to the core loop, which sets it

	File       cluster.FileName
	Generation cluster.Generation
	Offset     int64
	Length     int64
	CRC        uint32

	Holder      *LockHolder   // with StatusHeld: who holds the lock, nil if only others wait
	HoldLeft    time.Duration // of a renewal: what is left of MaxHold, 0 where there is none; set by the core loop
	QueueLength int           // with StatusHeld and Pending: how many wait
	Committed   bool          // with StatusFileQuarantined and StatusUnknown: the append is in the log
	Repeat      bool          // answered from a receipt
	Ask         *Ask          // of a renewal: the holder is asked to let go; set by the core loop
	Message     string        // for people
}

// LockHolder says who holds a lock: the first of them, if they are several.
type LockHolder struct {
	Client cluster.ClientID
	Token  cluster.Token
	Holder Holder
	Since  int64 // as in Grant
	Mode   Mode
	Count  int // of those who hold it
}

// OutcomeOf is the outcome that r gives its requester. Its Status is StatusNone
// if r answers nobody: Enqueue, the Bind of a first append, and records that no
// request asked for.
func OutcomeOf(r *Record) Outcome {
	switch {
	case r.Kind == KindOpenClient:
		return Outcome{Status: cluster.StatusOK, Client: cluster.OpenedClientID(r.LSN, r.Mark), LSN: r.LSN, Epoch: r.Epoch}
	case r.Request == 0 || r.Kind == KindEnqueue:
		return Outcome{}
	}
	rc := receiptOf(r)
	out := rc.outcome(r.Client)
	out.TTL = r.TTL
	return out
}

// outcome is what the receipt says; it does not look at the present.
func (rc *receipt) outcome(client cluster.ClientID) Outcome {
	out := Outcome{
		Status: rc.status(), Client: client, Request: rc.request, LSN: rc.lsn, Epoch: rc.epoch,
		Lock: rc.lock, Token: rc.token,
	}
	if rc.kind == KindAlready {
		out.Message = "it was so already: the file is bound to this lock, or sealed"
	}
	if f := rc.file; f != nil {
		out.File, out.Generation, out.Offset, out.Length, out.CRC = f.name, f.generation, f.offset, f.length, f.crc
	}
	return out
}

func (rc *receipt) status() cluster.Status {
	switch rc.kind {
	case KindWaitTimeout:
		return cluster.StatusWaitTimeout
	case KindCancel:
		return cluster.StatusCancelled
	default:
		return cluster.StatusOK
	}
}

// Quarantined is the outcome of an append that is in the log while its file cannot be trusted.
func (out Outcome) Quarantined(reason string) Outcome {
	out.Status, out.Committed, out.Message = cluster.StatusFileQuarantined, true, reason
	return out
}

// Unwritten is the outcome of an append that is in the log and not in its file yet. It will
// be, without anybody asking again, when the file can be written.
func (out Outcome) Unwritten(reason string) Outcome {
	out.Status, out.Committed = cluster.StatusUnknown, true
	out.Message = fmt.Sprintf("the append is committed (LSN %d, offset %d) and not in the file yet: it is written when the file works, so do not append it again, ask for it under the same request ID; %s", out.LSN, out.Offset, reason)
	return out
}

// repeat answers a request that has a receipt. An Acquire is answered from the
// present: a grant that has ended must not look alive. Nor must an append look done
// whose bytes were still on their way to the file when that was quarantined.
func (t *Table) repeat(c *client, rc *receipt) Outcome {
	out := rc.outcome(c.id)
	out.Repeat = true
	if rc.kind == KindAppend {
		if why := t.lost(rc); why != "" {
			return out.Quarantined(why)
		}
		return out
	}
	if rc.kind != KindGrant {
		return out
	}
	if g := t.live(rc.lock, rc.token); g != nil {
		out.TTL = g.ttl
		return out
	}
	out.Status = cluster.StatusLeaseExpired
	out.Message = "the grant of this request has ended"
	return out
}

// RequestState is what the table knows of one request.
type RequestState uint8

// The states of a request.
const (
	// RequestNotSeen: it was never executed and would be if it came now.
	RequestNotSeen RequestState = 0
	// RequestPending: it waits in a queue.
	RequestPending RequestState = 1
	// RequestExecuted: it was executed; the outcome is known.
	RequestExecuted RequestState = 2
	// RequestCancelled: it was cancelled and will never execute.
	RequestCancelled RequestState = 3
	// RequestStale: it is below a mark of its client, or its client is not
	// known: it will not be executed, and whether it was is forgotten.
	RequestStale RequestState = 4
)

// Lookup tells what became of a request. The Outcome of a request that is not
// executed or cancelled names the request and, if it waits, the lock.
func (t *Table) Lookup(id cluster.ClientID, request cluster.RequestID) (RequestState, Outcome) {
	out := Outcome{Client: id, Request: request}
	c := t.clients.get(id)
	if c == nil {
		if id.Opened() {
			return RequestStale, out
		}
		return RequestNotSeen, out
	}
	if rc := c.receipt(request); rc != nil {
		if rc.kind == KindCancel {
			return RequestCancelled, t.repeat(c, rc)
		}
		return RequestExecuted, t.repeat(c, rc)
	}
	if w := c.waiter(request); w != nil {
		return RequestPending, w.pending()
	}
	if c.stale(request) {
		return RequestStale, out
	}
	return RequestNotSeen, out
}

func (w *waiter) pending() Outcome {
	return Outcome{
		Client: w.client.id, Request: w.request, LSN: w.lsn, Epoch: w.epoch,
		Lock: w.lock.name, QueueLength: int(w.lock.queued),
	}
}
