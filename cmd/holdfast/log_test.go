// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Nobody reads what the servers log: a pager, a stalled journal. They serve all the same.
func TestServersServeWhileNobodyReadsTheirLog(t *testing.T) {
	r, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()      //nolint:errcheck // it is never read
	defer stderr.Close() //nolint:errcheck // nor written here
	w := &world{t: t, logs: &logs{}}
	w.start(stderr, "--log-level", "debug")
	w.primary(0)
	// A test that fails must not wait for a server that does.
	over := time.AfterFunc(time.Minute, func() { w.cmd.Process.Kill() }) //nolint:errcheck // its servers end with it
	defer over.Stop()
	long := strings.Repeat("x", 200)
	for i := range 600 { // some 400 bytes of log each: more than two pipes take
		code, got := w.post(0, "/v1/acquire", fmt.Sprintf(`{"lock":"%s%d","ttl":"1m"}`, long, i))
		if code != http.StatusOK {
			t.Fatalf("acquire %d: %d %v", i, code, got)
		}
	}
	if s := w.status(); s.Epoch != 1 {
		t.Errorf("the reign has changed: epoch %d", s.Epoch)
	}
}
