// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/convert"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// The user and the host of a process come back as they were sent, though the table keeps them as one text.
func TestHolderHasAUser(t *testing.T) {
	for _, x := range []struct {
		sent *pb.Holder
		kept locktable.Holder
	}{
		{&pb.Holder{Host: "web3", Pid: 7, Command: "make"}, locktable.Holder{Host: "web3", PID: 7, Command: "make"}},
		{&pb.Holder{User: "alice", Host: "web3"}, locktable.Holder{Host: "alice@web3"}},
		{&pb.Holder{User: "alice"}, locktable.Holder{Host: "alice@"}},
		{&pb.Holder{User: "alice@example.org", Host: "web3"}, locktable.Holder{Host: "alice@example.org@web3"}},
	} {
		if got := convert.ToHolder(x.sent); got != x.kept {
			t.Errorf("%v is kept as %+v, want %+v", x.sent, got, x.kept)
		}
		if got := convert.FromHolder(x.kept, ""); !proto.Equal(got, x.sent) {
			t.Errorf("%+v is told as %v, want %v", x.kept, got, x.sent)
		}
		held := convert.FromOutcome(&locktable.Outcome{Holder: &locktable.LockHolder{Client: "c", Holder: x.kept}}).GetHolder()
		if held.GetUser() != x.sent.GetUser() || held.GetHost() != x.sent.GetHost() {
			t.Errorf("%+v is told as %v", x.kept, held)
		}
	}
}

// TestHostWithAnAt is told with another sign there, and the user as it is: nobody seems to be somebody else.
func TestHostWithAnAt(t *testing.T) {
	for _, x := range []struct{ sent, told *pb.Holder }{
		{&pb.Holder{User: "alice", Host: "a@b"}, &pb.Holder{User: "alice", Host: "a_b"}},
		{&pb.Holder{User: "alice@example.org", Host: "a@b@"}, &pb.Holder{User: "alice@example.org", Host: "a_b_"}},
		{&pb.Holder{Host: "root@b"}, &pb.Holder{Host: "root_b"}},
	} {
		if got := convert.FromHolder(convert.ToHolder(x.sent), ""); !proto.Equal(got, x.told) {
			t.Errorf("%v is told as %v, want %v", x.sent, got, x.told)
		}
	}
}
