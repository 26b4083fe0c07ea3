// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// waits are the ways in which alice may wait for the lock l. Each returns what it is told at the end.
func (d *doors) waits() map[string]func(client string) cluster.Status {
	ctx := metadata.AppendToOutgoingContext(d.t.Context(), "authorization", "Bearer alice")
	q := func(client string) *pb.AcquireRequest {
		id := uint64(1)
		if client == "" {
			id = 0
		}
		return &pb.AcquireRequest{ClientId: client, RequestId: id, Lock: "l", TtlMs: 60000, WaitMs: proto.Int64(-1)}
	}
	unary := func(client string) cluster.Status {
		a, err := d.c.Acquire(ctx, q(client))
		return statusOf(a.GetStatus(), err)
	}
	return map[string]func(string) cluster.Status{
		"gRPC": unary, "gRPC without IDs": func(string) cluster.Status { return unary("") },
		"session": func(client string) cluster.Status {
			s := connectAs(d.t, d.c, "alice")
			defer s.Close()
			if err := s.Send(&pb.SessionRequest{
				Hello: &pb.SessionHello{ClientId: client}, Operations: []*pb.Operation{{Correlation: 1, Request: &pb.Operation_Acquire{Acquire: q(client)}}},
			}); err != nil {
				d.t.Error(err)
				return 0
			}
			r := next(d.t, s, func(r *pb.SessionResponse) bool { return len(r.Answers) > 0 || r.GetEnd() != nil })
			if r.GetEnd() != nil {
				return wire.FromStatus(r.GetEnd().GetStatus())
			}
			return wire.FromStatus(r.Answers[0].GetStatus())
		},
		"HTTP": func(client string) cluster.Status {
			body := `{"lock":"l","ttl":"1m","wait":"1h","client_id":"` + client + `","request_id":1}`
			r, _ := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.http.URL+"/v1/acquire", strings.NewReader(body)) // it is well-formed
			r.Header.Set("Authorization", "Bearer alice")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				d.t.Error(err)
				return 0
			}
			resp.Body.Close() //nolint:errcheck // it is not read
			return map[int]cluster.Status{401: cluster.StatusUnauthenticated, 403: cluster.StatusPermissionDenied}[resp.StatusCode]
		},
	}
}

// TestWaitEndsWithItsPermission: who waits for a lock that he may not acquire any more is told why, and leaves the queue by a record,
// whichever way he came. Another one keeps his place, and so does he whose credential only expires.
func TestWaitEndsWithItsPermission(t *testing.T) {
	all := []access.Verb{access.Acquire, access.Read}
	for name, x := range map[string]struct {
		rules access.File
		want  cluster.Status
	}{
		"other rules": {access.File{Rules: []access.Rule{
			{Who: []string{"user:bob"}, May: all, Locks: []string{"**"}}, {Who: []string{"user:alice"}, May: all, Locks: []string{"elsewhere"}},
		}}, cluster.StatusPermissionDenied},
		"revoked": {access.File{
			Rules: []access.Rule{{Who: []string{"user:alice", "user:bob"}, May: all, Locks: []string{"**"}}},
			Ended: []access.Revocation{{Who: []string{"user:alice"}, Before: time.Now()}},
		}, cluster.StatusUnauthenticated},
	} {
		d := newDoors(t)
		d.quota(nil)
		executed(t, d.b, acquire("holder", 1))
		others := make(chan struct{})
		ctx, leave := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer bob"))
		go func() {
			defer close(others)
			_, _ = d.c.Acquire(ctx, &pb.AcquireRequest{ClientId: "bob", RequestId: 1, Lock: "l", TtlMs: 60000, WaitMs: proto.Int64(-1)}) // until leave
		}()
		ways := d.waits()
		told := make(chan string, len(ways))
		for way, wait := range ways {
			go func() {
				if got := wait(strings.ReplaceAll(way, " ", "-")); got != x.want {
					told <- way + ": " + got.String()
					return
				}
				told <- ""
			}()
		}
		eventually(t, "all wait", func() bool { return d.b.lockAt(t, "l").QueueLength == 1+len(ways) })
		d.s.EndForbidden() // changes nothing
		d.g.set(t, &x.rules)
		began := time.Now()
		d.s.EndForbidden()
		for range ways {
			select {
			case got := <-told:
				if got != "" {
					t.Errorf("%s: %s, want %v", name, got, x.want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: one waits on", name)
			}
		}
		if took := time.Since(began); took > 30*time.Second { // of a busy machine; it is a second
			t.Errorf("%s: it took %v", name, took)
		}
		eventually(t, name+": their places are free", func() bool { return d.b.lockAt(t, "l").QueueLength == 1 })
		leave()
		<-others
	}
}
