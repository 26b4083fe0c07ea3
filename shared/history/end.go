// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// Why is how a grant ended.
type Why uint8

// The ways to end. Numbers are those of HistoryWhy on the wire.
const (
	// WhyHeld: it has not ended.
	WhyHeld Why = 0
	// WhyReleased: the client that held it released it.
	WhyReleased Why = 1
	// WhyReleasedByOther: another client released it with its token.
	WhyReleasedByOther Why = 2
	// WhyExpired: its lease ran out.
	WhyExpired Why = 3
	// WhyBroken: an operator broke it.
	WhyBroken Why = 4
	// WhyCleared: a failover dropped all grants, as its policy says.
	WhyCleared Why = 5
	// WhyUnknown: in a way of a newer binary.
	WhyUnknown Why = 255
)

var whyWords = [...]string{
	WhyHeld: "held", WhyReleased: "released", WhyReleasedByOther: "released_by_other", WhyExpired: "expired",
	WhyBroken: "broken", WhyCleared: "cleared",
}

// String returns its name, as in files.
func (w Why) String() string {
	if int(w) < len(whyWords) {
		return whyWords[w]
	}
	return "unknown"
}

// parseWhy returns the Why with this name, WhyUnknown if there is none.
func parseWhy(word string) Why {
	for w, x := range whyWords {
		if x == word {
			return Why(w)
		}
	}
	return WhyUnknown
}

// End is one grant that ended, and how.
type End struct {
	LSN   cluster.LSN   // of the record that ended it
	Epoch cluster.Epoch // of that record
	// Time is when that was decided, in milliseconds since 1970 by the clock of the
	// primary of Epoch; for people. 0 if it is not known.
	Time int64
	Why  Why

	Lock    cluster.LockName
	Token   cluster.Token
	Granted cluster.Epoch // that granted it
	Since   int64         // when it was granted, like Time
	Client  cluster.ClientID
	Request cluster.RequestID
	// TTL is that of its lease; 0 if an older binary wrote the line.
	TTL time.Duration
	// Mode is the last one: a grant that was downgraded was exclusive before.
	Mode   locktable.Mode
	Permit locktable.Permit
	Holder locktable.Holder
	// Identity is that of the client, "" for none.
	Identity string
	// Metadata is the last one of the grant.
	Metadata string

	// Actor and Reason are of a break; for a release by another client, Actor is that client;
	// an expiry has a Reason if it was not a missed renewal.
	Actor, Reason string
	// Append is the last one under the token; Length 0: none, or not known any more.
	Append Append
	// Successor is the token of the waiter that got the lock in the same batch; 0 if none
	// did.
	Successor cluster.Token
}

// Append is the place of an append.
type Append struct {
	File           cluster.FileName
	Offset, Length int64
	LSN            cluster.LSN
}

// Compare orders ends by LSN, and those of one record by token.
func (e *End) Compare(other *End) int {
	return cmp.Or(cmp.Compare(e.LSN, other.LSN), cmp.Compare(e.Token, other.Token))
}

// Size returns about how much memory it takes, in bytes.
func (e *End) Size() int {
	return 256 + len(e.Metadata) + len(e.Actor) + len(e.Reason) + len(e.Holder.Command) + len(e.Identity) + len(e.Append.File)
}

// Range is a range of LSNs, both ends included.
type Range struct{ From, To cluster.LSN }

// Skip stands for Count ends within a Range that were left out.
type Skip struct {
	Range
	Count uint64

	began int64 // when, by the records' clock
}

// Batch is the ends in a piece of the log, in its order.
type Batch struct {
	Ends  []End
	Skips []Skip
}

// Reset empties it and keeps its memory.
func (b *Batch) Reset() {
	clear(b.Ends)
	b.Ends, b.Skips = b.Ends[:0], b.Skips[:0]
}

// Seal has the next Skip begin a new count, because the last one was read.
func (b *Batch) Seal() {
	if n := len(b.Skips) - 1; n >= 0 {
		b.Skips[n].began = -1 << 60
	}
}

// skipRun is how much time one Skip covers at most, in milliseconds. A clock that was set back
// begins a new one: otherwise one Skip would cover all that follows, until the old time is reached.
const skipRun = 1000

// Skip counts an end that is left out.
func (b *Batch) Skip(lsn cluster.LSN, at int64) {
	b.Count(Skip{Range: Range{lsn, lsn}, Count: 1, began: at})
}

// Count adds a Skip that is later than all others.
func (b *Batch) Count(k Skip) {
	if n := len(b.Skips) - 1; n >= 0 {
		if passed := k.began - b.Skips[n].began; 0 <= passed && passed < skipRun {
			b.Skips[n].To = k.To
			b.Skips[n].Count += k.Count
			return
		}
	}
	b.Skips = append(b.Skips, k)
}
