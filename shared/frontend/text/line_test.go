// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("n", cluster.MaxLockName)
	for text, want := range map[string]line{
		"LOCK,a/b,me":                           {command: "LOCK", lock: "a/b", client: "me"},
		"lock,a,me,30":                          {command: "LOCK", lock: "a", client: "me", ttl: 30 * time.Second},
		"Lock,a,me,1m30s,5":                     {command: "LOCK", lock: "a", client: "me", ttl: 90 * time.Second, wait: 5 * time.Second},
		"LOCK,a,me,1500ms,0":                    {command: "LOCK", lock: "a", client: "me", ttl: 1500 * time.Millisecond},
		"LOCK,a,me,30,24h":                      {command: "LOCK", lock: "a", client: "me", ttl: 30 * time.Second, wait: 24 * time.Hour},
		"LOCK,ein schönes Schloß,me":            {command: "LOCK", lock: "ein schönes Schloß", client: "me"},
		"LOCK," + long + "," + long[:maxClient]: {command: "LOCK", lock: cluster.LockName(long), client: long[:maxClient]},
		"UNLOCK,a,h1:17":                        {command: "UNLOCK", lock: "a", client: "h1:17"},
		"UNLOCK,a,me,17":                        {command: "UNLOCK", lock: "a", client: "me", token: 17},
		"RENEW,a,me,17":                         {command: "RENEW", lock: "a", client: "me", token: 17},
		"TOKEN,a,me":                            {command: "TOKEN", lock: "a", client: "me"},
		"OWN,a":                                 {command: "OWN", lock: "a"},
		"OWN,a,me":                              {command: "OWN", lock: "a", client: "me"},
		"QUIT":                                  {command: "QUIT"},
		"LOCK,a,none":                           {command: "LOCK", lock: "a", client: "none"},
	} {
		if got, refusal := parse([]byte(text)); got != want || refusal != "" {
			t.Errorf("%.80q: got %+v %q, want %+v", text, got, refusal, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("n", cluster.MaxLockName)
	for want, lines := range map[string][]string{
		invalidCommand: {
			"HOLD,a,me",
			" LOCK,a,me",
			"LOCK a me",
			",",
			"SUCCESS",
		},
		invalidFormat: {
			"",
			"LOCK",
			"LOCK,a",
			"LOCK,,me",
			"LOCK,a,",
			"LOCK,a,me,",
			"LOCK,a,me,30,5,5",
			"LOCK, a,me",
			"LOCK,a,me ",
			"LOCK,a,me,0",
			"LOCK,a,me,-5",
			"LOCK,a,me,soon",
			"LOCK,a,me,1us",
			"LOCK,a,me,99999999999",
			"LOCK,a,me,30,25h",
			"LOCK,a,me,30,forever",
			"LOCK,../a,me",
			"LOCK,/a,me",
			"LOCK," + long + "n,me",
			"LOCK,a," + long[:maxClient+1],
			"LOCK,a,@17",
			"LOCK,a,~17",
			"LOCK,a,=me",
			"LOCK,a,m e",
			"LOCK,a,\"me\"",
			"LOCK,a,möh",
			"LOCK,a,NONE",
			"LOCK,a,ERROR",
			"UNLOCK,a,me,0",
			"UNLOCK,a,me,x",
			"TOKEN,a,me,1",
			"OWN",
			"OWN,a,me,1",
			"QUIT,now",
			"LOCK,a\x00,me",
			"HO\x00LD,a,me",
			"LOCK,a,me," + strings.Repeat("0", maxLine) + "30",
			"LOCK,a\tb,me",
			"\xff\xf4\xff\xfdLOCK,a,me", // telnet: interrupt
			"OWN,a" + strings.Repeat(" ", maxLine),
		},
	} {
		for _, text := range lines {
			if got, refusal := parse([]byte(text)); got != (line{}) || refusal != want {
				t.Errorf("%.80q: got %+v %q, want %s", text, got, refusal, want)
			}
		}
	}
}

// TestNamesOfClients: a client's ID is a good one, of one client and one lock, and shown as its name.
func TestNamesOfClients(t *testing.T) {
	seen := map[cluster.ClientID]bool{}
	for _, client := range []string{"me", "a/b", "a", "0", "_", strings.Repeat("c", maxClient)} {
		for _, lock := range []cluster.LockName{"a", "b", "a/b", "me"} {
			id := clientID(client, lock)
			if err := id.Validate(); err != nil || !id.Anonymous() || id.Opened() || seen[id] {
				t.Errorf("%s: %v", id, err)
			}
			seen[id] = true
			if got := ownerOf(id, lock); got != client {
				t.Errorf("the owner is %q, not %q", got, client)
			}
			if got := ownerOf(id, lock+"x"); validClient(got) {
				t.Errorf("%s passes for %s on another lock", id, got)
			}
		}
	}
	for id, want := range map[cluster.ClientID]string{
		"@17": "@17", "~ABCDEFGHIJKLMNOPQRSTUVWXYZ": "~ABCDEFGHIJKLMNOPQRSTUVWXYZ", "c1": "=c1", "NONE": "=NONE",
		"text/me/0": "=text/me/0", "~text/": "~text/", "~text/me/00": "~text/me/00", "~text/0123456789abcdef": "~text/0123456789abcdef",
	} {
		if got := ownerOf(id, "a"); got != want || validClient(got) {
			t.Errorf("%s is shown as %s, want %s", id, got, want)
		}
	}
}

// TestRequestsOfALine: the same line is the same request, and any other is another one.
func TestRequestsOfALine(t *testing.T) {
	seen := map[cluster.RequestID]bool{releaseID: true}
	for _, lock := range []cluster.LockName{"a", "b"} {
		for _, ttl := range []time.Duration{time.Second, 30 * time.Second} {
			for _, wait := range []time.Duration{0, time.Second, 30 * time.Second} {
				id := acquireID(lock, ttl, wait)
				if id != acquireID(lock, ttl, wait) || seen[id] || id == 0 || id > locktable.MaxRequestID {
					t.Errorf("%s %v %v: request %d", lock, ttl, wait, id)
				}
				seen[id] = true
			}
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"LOCK,a,me,30,5", "UNLOCK,a,me,17", "OWN,a", "QUIT", "", ",,,", "lock,ä,b", "\xff\xfd", "LOCK,a,NONE", "LOCK,a,me,1h,24h"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, refusal := parse(b)
		if refusal != "" {
			if l != (line{}) || refusal != invalidFormat && refusal != invalidCommand {
				t.Fatalf("%q: %+v, %q", b, l, refusal)
			}
			return
		}
		if l.command == "QUIT" {
			return
		}
		if err := l.lock.Validate(); err != nil || len(b) > maxLine || strings.Contains(string(l.lock), ",") {
			t.Fatalf("%q: lock %q, %v", b, l.lock, err)
		}
		if l.client != "" {
			id := clientID(l.client, l.lock)
			if err := id.Validate(); err != nil || ownerOf(id, l.lock) != l.client {
				t.Fatalf("%q: client %q, %v, shown as %q", b, l.client, err, ownerOf(id, l.lock))
			}
		}
		if l.ttl < 0 || l.wait < 0 || l.wait > maxWait || l.ttl%time.Millisecond != 0 || l.wait%time.Millisecond != 0 {
			t.Fatalf("%q: %+v", b, l)
		}
	})
}

// Each command of the table of operations is executed, and no other one.
func TestCommandsAreThoseOfTheTable(t *testing.T) {
	known := 0
	for _, o := range ops.All() {
		if v := o.Line.Verb; v != "" {
			if known++; commands[v] == nil {
				t.Errorf("nothing executes %s", v)
			}
		}
	}
	if known != len(commands) {
		t.Errorf("%d commands are executed, and the table has %d", len(commands), known)
	}
}
