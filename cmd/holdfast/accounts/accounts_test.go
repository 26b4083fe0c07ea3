// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said is what a command says.
type said struct {
	out  string
	code int
	err  error
}

// host returns Names of a host on which commands say this, and a count of the questions.
func host(all map[string]said) (*Names, *int) {
	n, asked := New(), 0
	n.ask = func(_ context.Context, name string, args ...string) ([]byte, int, error) {
		asked++
		x, ok := all[name+" "+strings.Join(args, " ")]
		if !ok {
			return nil, 0, fmt.Errorf("nobody asked for %s %q", name, args)
		}
		return []byte(x.out), x.code, x.err
	}
	return n, &asked
}

func TestOf(t *testing.T) {
	ids, groups := "id -G -- alice", "getent group 7 8 9"
	passwd := said{"alice:x:7:7::/home/alice:/bin/sh\n", 0, nil}
	for name, x := range map[string]struct {
		all  map[string]said
		uid  uint32
		want string
	}{
		"a user":                {map[string]said{"getent passwd 7": passwd, ids: {"7 8 9\n", 0, nil}, groups: {"alice:x:7:\nastro:x:8:bob,alice\nother:x:10:\nbad*:x:9:\n", 2, nil}}, 7, "user:alice [group:alice group:astro]"},
		"a user without groups": {map[string]said{"getent passwd 7": passwd, ids: {"\n", 0, nil}}, 7, "user:alice []"},
		"no name":               {map[string]said{"getent passwd 8": {"", 2, nil}}, 8, "uid:8 []"},
		"no getent":             {map[string]said{"getent passwd 8": {"", 0, exec.ErrNotFound}}, 8, "uid:8 []"},
		"another number":        {map[string]said{"getent passwd 8": {"alice:x:7:7:::\n", 0, nil}}, 8, "uid:8 []"},
		"a number as a name":    {map[string]said{"getent passwd 8": {"0:x:8:8:::\n", 0, nil}}, 8, "uid:8 []"},
		"a pattern as a name":   {map[string]said{"getent passwd 8": {"*:x:8:8:::\n", 0, nil}}, 8, "uid:8 []"},
		"nonsense":              {map[string]said{"getent passwd 8": {"nothing", 0, nil}}, 8, "uid:8 []"},
		"nobody by name":        {map[string]said{"getent passwd 99": {"nobody:x:99:99:::\n", 0, nil}}, 99, "error"},
		"nobody":                {map[string]said{"getent passwd 65534": {"", 2, nil}}, 65534, "error"},
		"none":                  {map[string]said{"getent passwd 4294967295": {"", 2, nil}}, 1<<32 - 1, "error"},
		"-2":                    {map[string]said{"getent passwd 4294967294": {"", 2, nil}}, 1<<32 - 2, "error"},
		"getent fails":          {map[string]said{"getent passwd 8": {"", 3, nil}}, 8, "error"},
		"getent is late":        {map[string]said{"getent passwd 8": {"", 0, errors.New("late")}}, 8, "error"},
		"id fails":              {map[string]said{"getent passwd 7": passwd, ids: {"", 1, nil}}, 7, "error"},
		"groups fail":           {map[string]said{"getent passwd 7": passwd, ids: {"7 8 9\n", 0, nil}, groups: {"", 1, nil}}, 7, "error"},
	} {
		n, _ := host(x.all)
		a, err := n.Of(t.Context(), x.uid)
		got := fmt.Sprint(a.Identity, " ", a.Groups)
		if err != nil {
			got = "error"
		}
		if got != x.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, x.want)
		}
	}
}

// An answer is used for a minute, a failure is not.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[string]said{"getent passwd 8": {"", 2, nil}, "getent passwd 9": {"", 3, nil}}
		n, asked := host(all)
		for _, uid := range []uint32{8, 8, 9, 9} {
			_, _ = n.Of(t.Context(), uid)
		}
		if *asked != 3 {
			t.Errorf("%d questions, want 3", *asked)
		}
		time.Sleep(keptTime)
		if _, _ = n.Of(t.Context(), 8); *asked != 4 {
			t.Errorf("%d questions, want 4", *asked)
		}
		for uid := range uint32(3 * maxKept) {
			all[fmt.Sprintf("getent passwd %d", uid)] = said{"", 2, nil}
			_, _ = n.Of(t.Context(), uid)
		}
		if len(n.kept) > maxKept {
			t.Errorf("%d are kept", len(n.kept))
		}
	})
}

// This host's own commands answer.
func TestThisHost(t *testing.T) {
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("there is no getent")
	}
	a, err := New().Of(t.Context(), 0)
	if err != nil || !reflect.DeepEqual(a.Identity, "user:root") || len(a.Groups) == 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, code, err := run(t.Context(), "sh", "-c", "exit 2"); code != 2 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := run(ctx, "sleep", "60"); err == nil {
		t.Error("it waits")
	}
	if _, _, err := run(t.Context(), "sh", "-c", "while echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; do :; done"); err == nil {
		t.Error("it takes all that is said")
	}
}

func FuzzGroupsOf(f *testing.F) {
	f.Add("a:x:1:\nb:x:2:m,n\n", "1 2")
	f.Fuzz(func(t *testing.T, out, numbers string) {
		for _, g := range groupsOf([]byte(out), strings.Fields(numbers)) {
			if name, ok := strings.CutPrefix(g, "group:"); !ok || !isName(name) {
				t.Errorf("%q is a group", g)
			}
		}
	})
}
