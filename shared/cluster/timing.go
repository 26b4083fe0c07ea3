// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"hash/fnv"
	"time"
)

// FailoverPolicy is what a new primary does with the locks it adopts.
type FailoverPolicy string

// The two failover policies.
const (
	// PolicyPreserve keeps holders, waiters and tokens over a failover.
	PolicyPreserve FailoverPolicy = "preserve"
	// PolicyClear drops holders and waiters with one ForceClear record, after every adopted lease must have ended.
	PolicyClear FailoverPolicy = "clear"
)

// PushAck is whether an answer waits until replicas show what it depends on. The volume makes
// that durable in any case: this is for clients that read at replicas.
type PushAck string

// The values of PushAck.
const (
	// PushAckNone does not wait.
	PushAckNone PushAck = "none"
	// PushAckMajority waits until more than half of the servers show it.
	PushAckMajority PushAck = "majority"
	// PushAckAll waits until every live replica shows it.
	PushAckAll PushAck = "all"
)

// Timing holds every duration that the servers of a cluster must agree on.
type Timing struct {
	// Heartbeat is the interval of the replicas' pings to the primary.
	Heartbeat time.Duration
	// Suspicion is how long a primary may be silent before an election starts. A server that was late
	// itself adds to this, to MajorityWindow and to QuorumTimeout, see package election.
	Suspicion time.Duration
	// MajorityWindow is how old a peer's answer may be for the peer to count as reached.
	MajorityWindow time.Duration
	// QuorumTimeout is how long a primary may miss a majority before it steps down.
	QuorumTimeout time.Duration
	// StorageTimeout is the age of the last volume check or probe from which on a server is not live.
	StorageTimeout time.Duration
	// FencingPeriod is the wait between setting the last fence and the scan. Where S is 0, on a
	// filesystem of one host, a takeover waits a part of it.
	FencingPeriod time.Duration
	// Staleness is S, how stale data from the filesystem may be; 0 if doctor saw none.
	Staleness time.Duration
	// MinTTL and MaxTTL bound the leases.
	MinTTL, MaxTTL time.Duration
	// ClearBuffer is added to the longest adopted TTL under PolicyClear.
	ClearBuffer time.Duration
	// ClientRetention is how long, on the serving clock, a silent client is remembered.
	ClientRetention time.Duration
	// Policy is the failover policy.
	Policy FailoverPolicy
	// PushAck is which replicas answers wait for; "" is PushAckNone.
	PushAck PushAck
	// PushAckTimeout is how long a replica may be silent before answers do not wait for it any more.
	PushAckTimeout time.Duration
}

// DefaultTiming returns the defaults: for a local filesystem or a healthy share on a LAN.
func DefaultTiming() Timing {
	return Timing{
		Heartbeat:       50 * time.Millisecond,
		Suspicion:       300 * time.Millisecond,
		MajorityWindow:  time.Second,
		QuorumTimeout:   time.Second,
		StorageTimeout:  5 * time.Second,
		FencingPeriod:   300 * time.Millisecond,
		MinTTL:          time.Second,
		MaxTTL:          600 * time.Second,
		ClearBuffer:     time.Second,
		ClientRetention: 24 * time.Hour,
		Policy:          PolicyPreserve,
		PushAck:         PushAckNone,
		PushAckTimeout:  500 * time.Millisecond,
	}
}

// Hash returns a number that two servers compare to see whether they have the same timing. It is never 0. A field that
// is added later goes into it only where it is not its default: binaries of two versions agree as long as they can.
func (t Timing) Hash() uint64 {
	if t.PushAck == "" {
		t.PushAck = PushAckNone
	}
	h := fnv.New64a()
	fmt.Fprintln(h, int64(t.Heartbeat), int64(t.Suspicion), int64(t.MajorityWindow), int64(t.QuorumTimeout), int64(t.StorageTimeout), int64(t.FencingPeriod), int64(t.Staleness),
		int64(t.MinTTL), int64(t.MaxTTL), int64(t.ClearBuffer), int64(t.ClientRetention), t.Policy, t.PushAck, int64(t.PushAckTimeout))
	return max(1, h.Sum64())
}

// TimingError reports a value that Timing.Validate refuses.
type TimingError struct {
	// Name is that of the setting, such as min-ttl.
	Name string
	// Text says what is wrong with its value.
	Text string
}

// Error implements error.
func (e *TimingError) Error() string { return e.Name + " " + e.Text }

// Validate checks the inequalities between the timings. Only those on Staleness and MinTTL are
// needed for safety; the others keep the cluster live. Its error is a *TimingError.
func (t Timing) Validate() error {
	atLeast := func(name string, got, least time.Duration, why string) error {
		if got < least {
			return &TimingError{name, fmt.Sprintf("is %v but must be at least %v: %s", got, least, why)}
		}
		return nil
	}
	if t.Policy != PolicyPreserve && t.Policy != PolicyClear {
		return &TimingError{"failover-policy", fmt.Sprintf("%q: use %q or %q", t.Policy, PolicyPreserve, PolicyClear)}
	}
	switch t.PushAck {
	case "", PushAckNone:
	case PushAckMajority, PushAckAll:
		if err := atLeast("push-ack-timeout", t.PushAckTimeout, 10*time.Millisecond, "a push needs its time"); err != nil {
			return err
		}
	default:
		return &TimingError{"push-ack", fmt.Sprintf("%q: use %q, %q or %q", t.PushAck, PushAckNone, PushAckMajority, PushAckAll)}
	}
	for _, err := range []error{
		atLeast("heartbeat", t.Heartbeat, time.Millisecond, "pings would fill the network"),
		atLeast("suspicion", t.Suspicion, 3*t.Heartbeat, "one lost ping must not start an election"),
		atLeast("majority-window", t.MajorityWindow, t.Suspicion, "a live peer must not look lost between pings"),
		atLeast("quorum-timeout", t.QuorumTimeout, t.Suspicion, "a primary must not step down before its replicas suspect it"),
		atLeast("storage-timeout", t.StorageTimeout, 2*t.Suspicion, "a slow check is not a dead volume"),
		atLeast("staleness", t.Staleness, 0, "a filesystem cannot show the future"),
		atLeast("fencing-period", t.FencingPeriod, 2*t.Staleness, "a claimant must not scan data older than its fence"),
		atLeast("min-ttl", t.MinTTL, 100*time.Millisecond, "no client could renew in time"),
		atLeast("max-ttl", t.MaxTTL, t.MinTTL, "no TTL would be allowed"),
		atLeast("clear-buffer", t.ClearBuffer, 0, "a lease must have ended"),
		atLeast("client-retention", t.ClientRetention, t.MaxTTL, "a holder must not be forgotten"),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
