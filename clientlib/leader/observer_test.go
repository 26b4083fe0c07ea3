// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// holds is a piece of a reset.
func holds(part int, last bool, name cluster.LockName, token cluster.Token) clientlib.Event {
	r := &clientlib.Reset{Part: part, Last: last}
	if name != "" {
		l := clientlib.LockInfo{Name: name}
		if token != 0 {
			l.Holder, l.Metadata = &wire.Holder{Token: token}, fmt.Sprintf("v%d", token)
		}
		r.Locks = []clientlib.LockInfo{l}
	}
	return clientlib.Event{Kind: clientlib.EventReset, Reset: r}
}

// shares is a reset of a lock that is shared.
func shares(token cluster.Token) clientlib.Event {
	e := holds(0, true, "svc", token)
	e.Reset.Locks[0].Holder.Mode = wire.ModeWord(pb.Mode_MODE_SHARED)
	return e
}

func happens(kind clientlib.EventKind, token cluster.Token) clientlib.Event {
	return clientlib.Event{Kind: kind, Lock: "svc", Token: token, Metadata: fmt.Sprintf("m%d", token)}
}

// TestWhatEndsRun: an outage does not, whatever it is told as; a refusal does.
func TestWhatEndsRun(t *testing.T) {
	outages := []cluster.Status{
		cluster.StatusSecondaryMode, cluster.StatusServerFencing, cluster.StatusNoQuorum, cluster.StatusStorageUnavailable, cluster.StatusUnknown,
		cluster.StatusLeaseExpired, cluster.StatusInvalidToken, cluster.StatusCancelled, cluster.StatusStaleRequest,
	}
	for _, s := range cluster.Statuses() {
		if s == cluster.StatusOK {
			continue
		}
		if got, want := refused(fmt.Errorf("campaign: %w", wire.Err(s))), !slices.Contains(outages, s); got != want {
			t.Errorf("%v ends Run: %v, want %v", s, got, want)
		}
	}
	for err, want := range map[error]bool{
		clientlib.ErrClosed: true, context.DeadlineExceeded: false, errors.New("no primary answered"): false,
		status.Error(codes.Unavailable, "reset"): false, status.Error(codes.PermissionDenied, "no"): true,
	} {
		if got := refused(fmt.Errorf("campaign: %w", err)); got != want {
			t.Errorf("%v ends Run: %v, want %v", err, got, want)
		}
	}
}

// TestObserver tells what each event makes of what was known.
func TestObserver(t *testing.T) {
	const unknown = "unknown"
	for _, x := range []struct {
		name   string
		events []clientlib.Event
		want   []string // after each event: token and value
	}{
		{"a reset counts when it is complete",
			[]clientlib.Event{holds(0, false, "svc", 5), holds(1, true, "", 0), holds(0, false, "", 0), holds(1, true, "svc", 7), holds(0, true, "", 0)},
			[]string{unknown, "5 v5", "5 v5", "7 v7", "0 "}},
		{"a lock that nobody holds", []clientlib.Event{holds(0, true, "svc", 0)}, []string{"0 "}},
		{"another lock", []clientlib.Event{holds(0, true, "svc/x", 5)}, []string{"0 "}},
		{"a reset that is begun anew",
			[]clientlib.Event{holds(0, false, "svc", 5), holds(0, true, "", 0)}, []string{unknown, "0 "}},
		{"nothing before the first reset", []clientlib.Event{happens(clientlib.EventGrant, 5)}, []string{unknown}},
		{"grants and ends",
			[]clientlib.Event{
				holds(0, true, "", 0), happens(clientlib.EventGrant, 5), happens(clientlib.EventRelease, 5), happens(clientlib.EventGrant, 7),
				happens(clientlib.EventExpire, 7), happens(clientlib.EventGrant, 9), happens(clientlib.EventBreak, 9),
				happens(clientlib.EventGrant, 11), happens(clientlib.EventForceClear, 0),
			},
			[]string{"0 ", "5 m5", "0 ", "7 m7", "0 ", "9 m9", "0 ", "11 m11", "0 "}},
		{"a value", []clientlib.Event{
			holds(0, true, "svc", 5), {Kind: clientlib.EventMetadata, Lock: "svc", Token: 5, Metadata: "x"}, {Kind: clientlib.EventMetadata, Lock: "svc", Token: 5},
		}, []string{"5 v5", "5 x", "5 "}},
		{"who shares the lock leads nobody", []clientlib.Event{
			shares(5), happens(clientlib.EventRelease, 5), happens(clientlib.EventGrant, 7), happens(clientlib.EventDowngrade, 7),
			{Kind: clientlib.EventGrant, Lock: "svc", Token: 9, Shared: true}, happens(clientlib.EventRelease, 9), happens(clientlib.EventGrant, 11),
		}, []string{"0 ", "0 ", "7 m7", "0 ", "0 ", "0 ", "11 m11"}},
		{"what does not concern the leader",
			[]clientlib.Event{
				holds(0, true, "svc", 5), happens(clientlib.EventRelease, 4), happens(clientlib.EventExpire, 4), happens(clientlib.EventBreak, 4),
				happens(clientlib.EventMetadata, 4), {Kind: clientlib.EventTerm}, {Kind: clientlib.EventHandedOver},
				{Kind: clientlib.EventRelease, Lock: "svc/x", Token: 5},
			},
			[]string{"5 v5", "5 v5", "5 v5", "5 v5", "5 v5", "5 v5", "5 v5", "5 v5"}},
	} {
		o := &observer{e: &Election{name: "svc"}}
		var got []string
		for _, e := range x.events {
			o.event(&e)
			if l, _ := o.take(); l == nil {
				got = append(got, unknown)
			} else {
				got = append(got, fmt.Sprintf("%d %s", l.Token, l.Value))
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}
