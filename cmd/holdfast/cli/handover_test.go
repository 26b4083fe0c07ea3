// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// What handover waits for: its successor serves, and the former primary could take over again.
func TestHandoverWaitsFor(t *testing.T) {
	for _, x := range []struct {
		name              string
		primary           uint32
		first             *pb.Server
		serves, takesOver bool
	}{
		{"primary", 1, &pb.Server{Id: 1, Role: pb.Role_ROLE_PRIMARY}, true, false},
		{"another is primary", 2, &pb.Server{Id: 1, Role: pb.Role_ROLE_PRIMARY}, false, false},
		{"takeover", 1, &pb.Server{Id: 1, Role: pb.Role_ROLE_FENCING}, false, false},
		{"has no claim yet", 2, &pb.Server{Id: 1, Role: pb.Role_ROLE_REPLICA}, false, false},
		{"able replica", 2, &pb.Server{Id: 1, Role: pb.Role_ROLE_REPLICA, Able: true}, false, true},
		{"able candidate", 2, &pb.Server{Id: 1, Role: pb.Role_ROLE_CANDIDATE, Able: true}, false, false},
		{"not listed", 1, &pb.Server{Id: 3, Role: pb.Role_ROLE_REPLICA, Able: true}, false, false},
	} {
		r := &pb.StatusResponse{Primary: &pb.Primary{Id: x.primary}, Servers: []*pb.Server{x.first}}
		if s, o := serves(r, 1), couldTakeOver(r, 1); s != x.serves || o != x.takesOver {
			t.Errorf("%s: serves %v, could take over %v", x.name, s, o)
		}
	}
}
