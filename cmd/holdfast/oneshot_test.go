// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// table is what `status -o json` says of the lock table.
type table struct {
	Table *struct{ Locks, Clients, Files int } `json:"table"`
}

// TestCommandsLeaveNothingBehind: what commands asked for is forgotten with them, and the past
// says of a lock that was passed from one to the next that it was released.
func TestCommandsLeaveNothingBehind(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	left := func() (x table) {
		await(t, "a count of the table", func() bool { // status does not wait for it for long
			x = table{}
			if err := json.Unmarshal([]byte(w.try("", "status", "-o", "json").out), &x); err != nil {
				t.Fatal(err)
			}
			return x.Table != nil
		})
		return x
	}
	for i := range 5 {
		token := strings.TrimSpace(w.do("", "acquire", "job"))
		w.do("a line\n", "append", "job", "log", "--token", token)
		w.do("", "metadata", "job", "--token", token, "half")
		w.do("", "file", "seal", "log", "--lock", "job", "--token", token)
		w.do("", "file", "rotate", "log", "--lock", "job", "--token", token, "--volume", w.dir)
		w.do("", "downgrade", "job", "--token", token)
		w.do("", "release", "job", "--token", token)
		w.do("a line\n", "append", "other", "another")
		w.do("", "acquire", "third")
		w.do("", "break", "third", "--reason", "a test")
		w.do("", "run", "job", "--", "true")
		w.do("", "run", "--wait", "0", "job", "--", "true")
		equal(t, "append to what is not ours", w.try("x", "append", "job", "log", "--token", token).code, 3)
		if x := left().Table; x.Clients != 0 || x.Locks != 2 {
			t.Fatalf("after %d rounds: %+v", i+1, x)
		}
	}
	if p, words := w.past("job"); words != strings.TrimSpace(strings.Repeat("released ", 15)) {
		t.Errorf("the past: %s %+v", words, p)
	}
	// A script that names itself in all three goes on working, and so does one that does not in the first.
	for i, first := range [][]string{{"--client-id", "script", "--request-id", "1"}, nil} {
		token := strings.TrimSpace(w.do("", append([]string{"acquire", "job"}, first...)...))
		named := func(n int) []string {
			return []string{"--token", token, "--client-id", "script", "--request-id", fmt.Sprint(10*i + n)}
		}
		w.do("line\n", append([]string{"append", "job", "log"}, named(2)...)...)
		w.do("line\n", append([]string{"append", "job", "log", "--client-id", "another", "--request-id", fmt.Sprint(i + 1)}, "--token", token)...)
		w.do("", append([]string{"release", "job"}, named(3)...)...)
	}
}
