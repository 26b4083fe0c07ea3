// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"time"
)

// Latency is how long calls into a volume take, and how late a machine's timers are, as
// measured: the worst values without single outliers.
type Latency struct {
	// Check is one check of a term: a block read past the caches, and its file's attributes.
	Check time.Duration
	// Write is one synced write of a block, as each commit makes one.
	Write time.Duration
	// Late is by how much a timer of the measuring process was late.
	Late time.Duration
}

// Suffices reports whether a timing is not clearly too tight for a latency. Covering has a margin
// of two: without it two measurements that differ a little would contradict each other.
func (t Timing) Suffices(l Latency) bool {
	return t.Covering(Latency{Check: l.Check / 2, Write: l.Write / 2, Late: l.Late / 2}) == t
}

const (
	// mostLatency bounds a latency: above it no timing helps.
	mostLatency = 10 * time.Second
	// probeInterval is how often an idle server writes to the volume, and an idle primary checks.
	probeInterval = time.Second
	// claimCalls is how many slow pairs of calls a claim may take: it lists the epochs, renames its
	// directory, syncs the new name, reads its nonce back, lists again, and opens its fence.
	claimCalls = 3
	// probeCalls is how many slow pairs of calls may follow each other before a volume counts as stalled.
	probeCalls = 4
	// renewals is how many slow commits have to fit into a lease.
	renewals = 6
)

// Covering returns the timing with everything raised that is too tight for a latency. Nothing is
// lowered. A valid timing stays valid, and more latency never leads to less of anything.
//
// A slow pair is the slowest write and the slowest check, what a commit takes. What has to cover it:
//
//   - StorageTimeout: twice the interval of the probes and four slow pairs. A server whose last probe
//     is older than StorageTimeout is not live; a server judges another one stalled only while its
//     own probe is younger than half of that. So half has to cover the second between two probes, and a few slow ones.
//   - MinTTL: six slow pairs. A client renews after a third of the TTL. Its renewal waits for the commit
//     under way and for its own, two pairs; with one renewal lost, two thirds have passed before that.
//   - Suspicion: three slow pairs, since a claim has to fit in. A server that comes after another
//     one, which is claiming and not seen to be primary yet, claims itself after rank x Suspicion: on
//     a slow share most elections would have two claims, and the second would end the first.
//
// Heartbeats and their answers do not touch the volume, so the share does not delay them. A slow
// machine does: a server whose own timer was late by more than two heartbeats drops its suspicion,
// because it may have been suspended itself. If timers are later than that, Heartbeat is half of
// how late they are, and the durations that count heartbeats keep their default multiples of it.
//
// Staleness and FencingPeriod do not depend on how long a call takes.
func (t Timing) Covering(l Latency) Timing {
	pair := believed(l.Check) + believed(l.Write)
	t.StorageTimeout = raised(t.StorageTimeout, 2*(probeInterval+probeCalls*pair))
	t.MinTTL = min(raised(t.MinTTL, renewals*pair), t.MaxTTL)
	t.Suspicion = raised(t.Suspicion, claimCalls*pair)
	if beat := raised(t.Heartbeat, believed(l.Late)/2); beat > t.Heartbeat {
		t.Heartbeat = beat
		t.Suspicion = max(t.Suspicion, 6*beat)
		t.MajorityWindow = max(t.MajorityWindow, 20*beat)
		t.QuorumTimeout = max(t.QuorumTimeout, 20*beat)
		t.PushAckTimeout = max(t.PushAckTimeout, 10*beat)
	}
	t.MajorityWindow = max(t.MajorityWindow, t.Suspicion)
	t.QuorumTimeout = max(t.QuorumTimeout, t.Suspicion)
	t.StorageTimeout = max(t.StorageTimeout, 2*t.Suspicion)
	return t
}

func believed(d time.Duration) time.Duration { return max(0, min(d, mostLatency)) }

// raised returns is or, if need is more, need, rounded up so that people can read it.
func raised(is, need time.Duration) time.Duration {
	if need <= is {
		return is
	}
	step := 100 * time.Millisecond
	if need > 10*time.Second {
		step = time.Second
	}
	return (need + step - 1) / step * step
}

// Flags returns the flags of `holdfast server` that change this timing to another one, of those
// that Covering raises. They are empty, not nil, if there is no difference.
func (t Timing) Flags(to Timing) []string {
	flags := []string{}
	for _, x := range []struct {
		name   string
		is, be time.Duration
	}{
		{"heartbeat", t.Heartbeat, to.Heartbeat},
		{"suspicion", t.Suspicion, to.Suspicion},
		{"majority-window", t.MajorityWindow, to.MajorityWindow},
		{"quorum-timeout", t.QuorumTimeout, to.QuorumTimeout},
		{"storage-timeout", t.StorageTimeout, to.StorageTimeout},
		{"min-ttl", t.MinTTL, to.MinTTL},
		{"push-ack-timeout", t.PushAckTimeout, to.PushAckTimeout},
	} {
		if x.is != x.be {
			flags = append(flags, fmt.Sprintf("--%s %v", x.name, x.be))
		}
	}
	return flags
}
