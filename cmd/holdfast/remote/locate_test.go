// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// frozen is the address of a server that takes connections and says nothing.
func frozen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // nothing was asked
	return l.Addr().String()
}

// A frozen server neither holds up a command nor leaves it in doubt of what it did there: only
// who says that it reigns is asked.
func TestAFrozenServerIsNotAsked(t *testing.T) {
	primary := start(t, func(int) (*pb.Answer, error) { return done(), nil })
	primary.role = pb.Role_ROLE_PRIMARY
	deposed := frozen(t)
	replica := start(t, func(int) (*pb.Answer, error) { t.Error("a replica was asked"); return done(), nil })
	replica.role, replica.names = pb.Role_ROLE_REPLICA, primary.addr
	behind := start(t, func(int) (*pb.Answer, error) { t.Error("a replica was asked"); return done(), nil })
	behind.role, behind.names = pb.Role_ROLE_REPLICA, deposed
	for what, endpoints := range map[string][]string{
		"first":                        {deposed, primary.addr},
		"first and second":             {deposed, frozen(t), primary.addr},
		"named by a replica":           {behind.addr, primary.addr},
		"beside a replica that knows":  {deposed, replica.addr},
		"nobody listens at the others": {"127.0.0.1:1", primary.addr},
	} {
		began := time.Now()
		r, err := remote.Write(t.Context(), caller(t, endpoints...), release)
		if took := time.Since(began); err != nil || r.GetToken() != 9 || took > 900*time.Millisecond {
			t.Errorf("%s: %v, %v after %v", what, r, err, took)
		}
	}
}

// What was answered without a doubt is forgotten; what may be executed yet is not.
func TestForget(t *testing.T) {
	for _, fails := range []int{0, 1} {
		s := start(t, func(n int) (*pb.Answer, error) {
			if n <= fails {
				return nil, context.DeadlineExceeded
			}
			return done(), nil
		})
		c := caller(t, s.addr)
		if _, err := remote.Write(t.Context(), c, release); err != nil {
			t.Fatal(err)
		}
		c.Forget(t.Context(), "cli-x")
		if want := 1 - fails; len(s.forgotten) != want {
			t.Errorf("after %d lost answers %q were forgotten", fails, s.forgotten)
		}
	}
}
