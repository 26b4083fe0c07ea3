// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// A claim that took longer than the suspicion time is confirmed before its first fence: by
// whether a server is primary, and not by the order of IDs.
func TestWhatEndsAClaim(t *testing.T) {
	for _, test := range []struct {
		name   string
		first  election.Status // of server 1
		own    time.Duration   // the age of this server's storage
		yields bool
	}{
		{"nobody", election.Status{}, 0, false},
		{"a lower server that is able", election.Status{Able: true}, 0, false},
		{"a lower claim that takes over", election.Status{Role: election.RoleFencing, Epoch: 4}, 0, false},
		{"a higher claim that takes over", election.Status{Role: election.RoleFencing, Epoch: 6}, 0, true},
		{"a primary", election.Status{Role: election.RolePrimary, Epoch: 4}, 0, true},
		{"storage of its own that is old", election.Status{}, 6 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var claimed atomic.Bool
			s := &script{ping: quiet}
			s.vote = func(to cluster.ServerID) election.Vote {
				v := election.Vote{From: to, Nonce: uint64(to)}
				if to == 1 && claimed.Load() {
					v.Status = test.first
				}
				return v
			}
			run(t, s, func(t *testing.T) {
				<-s.e.Elected()
				claimed.Store(true)
				s.change(func(st *election.Status) { st.Role, st.Epoch, st.Storage = election.RoleFencing, 5, test.own })
				wait(2 * cluster.DefaultTiming().Suspicion)
				if err := s.e.Confirm(t.Context()); errors.Is(err, election.ErrYield) != test.yields || err != nil && !test.yields {
					t.Errorf("the claim yields: %v, want %v", err, test.yields)
				}
			})
		})
	}
}

// A claim that came to nothing makes a server unable for a growing time: not where another one
// was first, and for longest where somebody has to mend something.
func TestHowLongAServerIsUnable(t *testing.T) {
	errBroken := errors.New("broken")
	for _, test := range []struct {
		err   error
		times int
		after time.Duration
		able  bool
	}{
		{election.ErrYield, 5, 10 * time.Millisecond, true},
		{errBroken, 1, 100 * time.Millisecond, false},
		{errBroken, 1, time.Second, true},
		{errBroken, 12, 5 * time.Second, false},
		{errBroken, 12, 20 * time.Second, true},
		{election.ErrNeedsOperator, 12, 20 * time.Second, false},
		{election.ErrNeedsOperator, 12, 3 * time.Minute, true},
	} {
		t.Run(fmt.Sprintf("%v, %d times, %v", test.err, test.times, test.after), func(t *testing.T) {
			s := &script{ping: calm}
			run(t, s, func(t *testing.T) {
				wait(time.Second)
				for range test.times {
					s.e.Done(fmt.Errorf("claim: %w", test.err), 0)
				}
				wait(test.after)
				if able := s.e.HandlePing(heard(3, 1, election.Status{})).Status.Able; able != test.able {
					t.Errorf("able: %v, want %v", able, test.able)
				}
			})
		})
	}
}
