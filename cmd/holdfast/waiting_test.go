// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestWaitIsReported: who waits for a lock learns who has it, unless there is not long to wait or
// the user wants to know nothing.
func TestWaitIsReported(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	w.do("", "acquire", "busy", "--ttl", "1m")
	for _, line := range []string{"run busy -w 1.8 -- true", "acquire busy -w 1.8", "flock -w 1.8 busy true", "append busy log --lines -w 1.8"} {
		r := w.try("x\n", strings.Fields(line)...)
		if r.code != 1 || r.out != "" || strings.Count(r.errs, "holdfast: waiting for lock busy: held by ") != 1 || !strings.Contains(r.errs, ", 0 before you in the queue\n") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	for _, line := range []string{"run busy -w 1.3 -q -- true", "acquire busy -w 1.3 -q", "acquire busy -w 1.3 -o json", "run busy -w 0.3 -- true"} {
		if r := w.try("", strings.Fields(line)...); r.code != 1 || strings.Contains(r.errs, "waiting for") {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// TestPlacesOfOneShell: two commands of one process are told their own places.
func TestPlacesOfOneShell(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	w.do("", "acquire", "busy", "--ttl", "1m")
	results := make([]result, 2)
	var all sync.WaitGroup
	for i := range results {
		await(t, "the queue", func() bool {
			return strings.Contains(w.try("", "show", "busy", "-o", "json").out, fmt.Sprintf(`"queue_length":%d`, i))
		})
		all.Go(func() { results[i] = w.try("", "acquire", "busy", "-w", "3") })
	}
	all.Wait()
	for i, r := range results {
		if !strings.Contains(r.errs, fmt.Sprintf(", %d before you in the queue\n", i)) {
			t.Errorf("command %d of two: %+v", i+1, r)
		}
	}
}
