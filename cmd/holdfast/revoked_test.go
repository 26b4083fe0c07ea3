// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestRevokedKeyWaitsNoMore: a command that waits for a lock ends when its key is revoked, says why, and leaves the queue. One with another
// key keeps its place.
func TestRevokedKeyWaitsNoMore(t *testing.T) {
	w := startDev(t, "--secure")
	w.primary(0)
	w.do("", "acquire", "busy", "--ttl", "5m")
	join := strings.TrimSpace(w.do("", "join", "--volume", w.dir))
	type ended struct {
		out  string
		code int
		at   time.Time
	}
	wait := func(key string) (<-chan ended, *exec.Cmd) {
		cmd := exec.Command(os.Getenv(binaryEnv), "acquire", "busy", "--wait", "1h")
		cmd.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+join, "HOLDFAST_KEY="+key)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
		over := make(chan ended, 1)
		go func() {
			_ = cmd.Wait() // its exit code tells
			over <- ended{out.String(), cmd.ProcessState.ExitCode(), time.Now()}
		}()
		return over, cmd
	}
	queue := func(length string) {
		t.Helper()
		await(t, "a queue of "+length, func() bool {
			return strings.Contains(w.try("", "show", "busy", "-o", "json").out, `"queue_length":`+length)
		})
	}
	ci, _ := wait(strings.TrimSpace(w.do("", "key", "create", "ci", "--volume", w.dir)))
	queue("1")
	other, cmd := wait(strings.TrimSpace(w.do("", "key", "create", "other", "--volume", w.dir)))
	queue("2")
	w.do("", "key", "revoke", "ci", "--volume", w.dir)
	revoked := time.Now()
	select {
	case r := <-ci:
		t.Log(r.out)
		unsure := r.code == 4 && strings.Contains(r.out, "not known whether it was done") // an earlier attempt of a busy machine had no answer
		if r.code != 5 && !unsure || !strings.Contains(r.out, "the key of service:ci was revoked") {
			t.Errorf("exit code %d: %s", r.code, r.out)
		}
		if took := r.at.Sub(revoked); took > 30*time.Second { // of a busy machine; it is a second
			t.Errorf("it took %v", took)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
	queue("1")
	select {
	case r := <-other:
		t.Errorf("the other one ended, too: %+v", r)
	default:
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-other
}
