// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire"
)

// A description of a process is one that servers accept, however long its texts are.
func TestNewHolder(t *testing.T) {
	h := wire.NewHolder(strings.Repeat("u", 100), strings.Repeat("ä", 200), "a\xffb"+strings.Repeat("ä", 200), 7)
	if len(h.User) != 64 || len(h.Host) != 190 || len(h.Command) != 255 || !strings.HasPrefix(h.Command, "a?bä") || h.Pid != 7 {
		t.Errorf("got %d bytes of user, %d of host, %d of command: %v", len(h.User), len(h.Host), len(h.Command), h)
	}
	if h := wire.NewHolder("", "web3", "", 0); h.User != "" || h.Host != "web3" {
		t.Errorf("got %v", h)
	}
}

func TestPersonIsOneHarmlessLine(t *testing.T) {
	got := wire.Person{User: "a\nb", Host: "h\x1b[2K", Command: "c\u202ed", PID: 1}.String()
	if want := `a\nb on h\x1b[2K, c\u202ed (pid 1)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPerson(t *testing.T) {
	for _, x := range []struct {
		p    wire.Person
		want string
	}{
		{wire.Person{Client: "@9"}, "client @9"},
		{wire.Person{Client: "@9", User: "alice", Host: "web3", PID: 4711, Command: "backup.sh"}, "alice on web3, backup.sh (pid 4711)"},
		{wire.Person{Client: "@9", Host: "web3", PID: 4711, Command: "backup.sh"}, "web3, backup.sh (pid 4711)"},
		{wire.Person{Client: "@9", User: "alice", Command: "backup.sh"}, "alice, backup.sh"},
		{wire.Person{Client: "@9", Host: "web3", PID: 4711}, "web3, pid 4711"},
		{wire.Person{Client: "@9", PID: 4711}, "pid 4711"},
		{wire.Person{Client: "@9", Identity: "user:bob"}, "user:bob"},
		{wire.Person{Client: "@9", Identity: "service:ci", User: "alice", Host: "web3", PID: 4711, Command: "backup.sh"},
			"service:ci, calling itself alice on web3, backup.sh (pid 4711)"},
	} {
		if got := x.p.String(); got != x.want {
			t.Errorf("%+v is shown as %q, want %q", x.p, got, x.want)
		}
	}
}
