// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

var memberSeeds = flag.Int("sim.members", 8, "how many seeds of schedules that change the list of servers to run")

// TestSchedulesOfMembers adds and removes servers by seed, while servers die around the change: each change has the answer that its repeat gets, a server that
// was added becomes a member, one that was removed ends, and nothing is lost.
func TestSchedulesOfMembers(t *testing.T) {
	for name, profile := range map[string]volumetest.Profile{"one host": volumetest.ProfileLocal(), "stale caches": volumetest.ProfileNetwork()} {
		for seed := *first; seed < *first+uint64(*memberSeeds); seed++ {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { scheduleOfMembers(t, profile, seed) })
			})
		}
	}
}

// comings is a schedule of servers that come and go.
type comings struct {
	*Cluster
	members []cluster.ServerID
	next    cluster.ServerID // the ID that is added next
	request cluster.RequestID
	did     []string
}

func scheduleOfMembers(t *testing.T, profile volumetest.Profile, seed uint64) {
	const rounds, steps = 20, 6
	s := &comings{Cluster: newClusterOn(t, profile, seed, rounds), members: []cluster.ServerID{1, 2, 3}, next: 4}
	s.Outages = true
	s.one(t, "start")
	for range steps {
		time.Sleep(time.Duration(s.Rand.IntN(3000)) * time.Millisecond)
		heal := s.strike(t)
		if len(s.members) < 3 || s.next <= mostServers && s.Rand.IntN(2) == 0 {
			s.comes(t)
		} else {
			s.goes(t)
		}
		heal()
		s.one(t, fmt.Sprintf("seed %d after %s", seed, strings.Join(s.did, ", ")))
	}
	s.finish(t, rounds)
}

// strike has something happen to a server in a moment, perhaps. What it returns waits for that and ends it.
func (s *comings) strike(t *testing.T) (heal func()) {
	delay := time.Duration(s.Rand.IntN(400)) * time.Millisecond
	id := s.members[s.Rand.IntN(len(s.members))]
	if primaries := s.Primaries(); len(primaries) == 1 && s.Rand.IntN(2) == 0 {
		id = primaries[0] // around the record
	}
	kind := s.Rand.IntN(3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(delay)
		switch kind {
		case 0:
			s.did = append(s.did, fmt.Sprintf("server %d killed", id))
			s.Kill(id)
			time.Sleep(2 * time.Second)
			// It may have been removed meanwhile.
			if err := s.Start(id); err != nil && !errors.Is(err, cluster.ErrRemoved) {
				t.Errorf("restart: %v", err)
			}
		case 1:
			s.did = append(s.did, fmt.Sprintf("server %d cut off", id))
			s.Net.Isolate(id, true)
			time.Sleep(3 * time.Second)
			s.Net.Isolate(id, false)
		}
	}()
	return func() { <-done }
}

// comes adds a server, and waits until it is a member.
func (s *comings) comes(t *testing.T) {
	id := s.next
	s.next++
	s.request++
	s.did = append(s.did, fmt.Sprintf("server %d added", id))
	s.changes(t, s.request, newcomer(id))
	within(t, 3*time.Minute, "the volume lists it", func() bool { return s.Start(id) == nil })
	within(t, 5*time.Minute, fmt.Sprintf("server %d is a member", id), func() bool { return s.isMember(id, id) })
	s.members = append(s.members, id)
}

// goes removes a server, which hands over if it is primary.
func (s *comings) goes(t *testing.T) {
	i := s.Rand.IntN(len(s.members))
	id := s.members[i]
	s.did = append(s.did, fmt.Sprintf("server %d removed", id))
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		s.request++
		out := s.change(t, s.request, removal(id))
		if out.Status == cluster.StatusOK {
			if again := s.change(t, s.request, removal(id)); again.Status != cluster.StatusOK || again.Version != out.Version || !again.Repeat {
				t.Errorf("removed at version %d, the repeat is told %v, version %d, repeat %t", out.Version, again.Status, again.Version, again.Repeat)
			}
			break
		}
		if time.Since(began) > 2*healing {
			t.Fatalf("server %d is not removed: %s", id, out.Message)
		}
		if x := s.server(id); x != nil && slices.Contains(s.Primaries(), id) {
			_, _ = x.node.Handover(t.Context(), 0) // where nobody is able it is tried again
		}
	}
	s.members = slices.Delete(s.members, i, i+1)
	if x := s.server(id); x != nil {
		if err := x.ended(t); !errors.Is(err, cluster.ErrRemoved) && !errors.Is(err, errKilled) {
			t.Errorf("server %d ended: %v", id, err)
		}
	}
	s.Kill(id)
}
