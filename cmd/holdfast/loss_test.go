// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
)

func (w *world) client() *clientlib.Client {
	w.t.Helper()
	c, err := clientlib.New(clientlib.Options{Endpoints: strings.Split(w.endpoints, ",")})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() }) //nolint:errcheck // it cannot fail
	return c
}

// lose acquires a lock, appends twice, ends the grant by a command, and returns what
// the holder was told at once and what it is told when it asks.
func (w *world) lose(lock cluster.LockName, args ...string) (receipt clientlib.Receipt, told, asked *clientlib.LostError) {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := w.client().Acquire(ctx, lock, clientlib.AcquireOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if receipt, err = l.Append(ctx, cluster.FileName(lock+".log"), []byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	w.do("", append(args, string(lock), "--token", strconv.FormatUint(uint64(l.Token()), 10))...)
	select {
	case <-l.Context().Done():
	case <-ctx.Done():
		t.Fatal("nobody told the holder")
	}
	if !errors.As(context.Cause(l.Context()), &told) {
		t.Fatalf("cause: %v", context.Cause(l.Context()))
	}
	if asked, err = l.Loss(ctx); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*clientlib.LostError{told, asked} {
		if e.LSN <= receipt.LSN || e.Epoch == 0 || !e.Final || e.LastAppend == nil || *e.LastAppend != receipt {
			t.Errorf("got %+v with last append %+v, want the one at LSN %d", e, e.LastAppend, receipt.LSN)
		}
	}
	if asked.LSN != told.LSN {
		t.Errorf("told at LSN %d, asked at LSN %d", told.LSN, asked.LSN)
	}
	return receipt, told, asked
}

// TestLossIsTold has real servers tell a holder how it lost its lock.
func TestLossIsTold(t *testing.T) {
	w := startDev(t)
	defer w.stop()
	w.primary(0)
	next := make(chan cluster.Token, 1)
	waiter := func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l, err := w.client().Acquire(ctx, "broken", clientlib.AcquireOptions{TTL: time.Minute, Wait: clientlib.Forever})
		if err != nil {
			t.Error(err)
			next <- 0
			return
		}
		next <- l.Token()
	}
	held := w.client()
	first, err := held.Acquire(t.Context(), "broken", clientlib.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go waiter()
	await(t, "the queue", func() bool {
		info, err := held.Get(t.Context(), "broken")
		return err == nil && info.QueueLength == 1
	})
	w.do("", "break", "broken", "--reason", "it hangs", "--actor", "ann")
	<-first.Context().Done()
	told := new(clientlib.LostError)
	if !errors.As(context.Cause(first.Context()), &told) {
		t.Fatalf("cause: %v", context.Cause(first.Context()))
	}
	if told.Reason != clientlib.LossBroken || told.Actor != "ann" || told.Message != "it hangs" || told.Successor != <-next {
		t.Errorf("got %+v", told)
	}
	if s := first.State(); s.Phase != clientlib.PhaseLost || s.Err != error(told) {
		t.Errorf("state %+v", s)
	}
	asked, err := first.Loss(t.Context())
	if err != nil || asked.Reason != told.Reason || asked.LSN != told.LSN || asked.Successor != told.Successor || !asked.Final || asked.LastAppend != nil {
		t.Errorf("asked: %+v, %v", asked, err)
	}

	if _, told, asked := w.lose("broken2", "break", "--reason", "again", "--actor", "bob"); told.Reason != clientlib.LossBroken || asked.Actor != "bob" || asked.Message != "again" {
		t.Errorf("told %+v, asked %+v", told, asked)
	}
	if _, told, asked := w.lose("released", "release"); told.Reason != clientlib.LossReleased || asked.Reason != clientlib.LossReleased {
		t.Errorf("told %+v, asked %+v", told, asked)
	}
	w.lossAfterACut()
}

// lossAfterACut pauses all servers until a holder has given its lock up. Then they tell
// the rest, the append too that was executed and not answered.
func (w *world) lossAfterACut() {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := w.client().Acquire(ctx, "cut", clientlib.AcquireOptions{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// By somebody else with the token, so this side has never heard of it.
	w.do("line\n", "append", "cut", "cut.log", "--token", strconv.FormatUint(uint64(l.Token()), 10))
	resume := w.pause()
	var all []clientlib.Phase
	for s := range l.States(ctx) {
		all = append(all, s.Phase)
	}
	if len(all) < 2 || all[len(all)-2] != clientlib.PhaseJeopardy || all[len(all)-1] != clientlib.PhaseLost {
		t.Errorf("phases %v", all)
	}
	told := new(clientlib.LostError)
	if !errors.As(context.Cause(l.Context()), &told) || told.Reason != clientlib.LossNotRenewed || told.Final {
		t.Errorf("cut off: %v", context.Cause(l.Context()))
	}
	resume()
	e, err := l.Loss(ctx)
	if err != nil || e.LSN == 0 || !e.Final || e.LastAppend == nil || e.LastAppend.Length != 5 {
		t.Fatalf("got %+v, %v", e, err)
	}
	if e.Reason != clientlib.LossExpired && e.Reason != clientlib.LossReleased {
		t.Errorf("got %+v", e)
	}
}

// stop ends the servers as Ctrl-C does, and waits for that: they write into a directory
// that is removed.
func (w *world) stop() {
	if err := errors.Join(w.cmd.Process.Signal(syscall.SIGINT), w.cmd.Wait()); err != nil {
		w.t.Errorf("dev: %v", err)
	}
}

// pause stops all servers until the returned function is called.
func (w *world) pause() (resume func()) {
	w.t.Helper()
	all := func(s syscall.Signal) {
		for _, x := range w.servers {
			if err := syscall.Kill(x.PID, s); err != nil {
				w.t.Errorf("server %d: %v", x.ID, err)
			}
		}
	}
	all(syscall.SIGSTOP)
	return func() { all(syscall.SIGCONT) }
}

// runResult is the last line of a run in JSON.
type runResult struct {
	Status   string `json:"status"`
	Token    uint64 `json:"token"`
	ExitCode int    `json:"exit_code"`
	Loss     *struct {
		Reason, Actor, Why string
		LSN, Successor     uint64
		LastAppend         *struct {
			File           string
			Offset, Length int64
			Token          uint64
		} `json:"last_append"`
		Final bool `json:"last_append_final"`
	} `json:"loss"`
}

func lastLine(t *testing.T, errs string) (r runResult) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Errorf("%v in %q", err, errs)
	}
	return r
}

// TestRunTellsTheLoss breaks the lock of a command that appends under it.
func TestRunTellsTheLoss(t *testing.T) {
	w := startDev(t)
	defer w.stop()
	w.primary(0)
	ready := filepath.Join(t.TempDir(), "ready")
	script := fmt.Sprintf(`printf 'ab' | %[1]s append $HOLDFAST_LOCK told.log --token $HOLDFAST_TOKEN
printf 'cde' | %[1]s append $HOLDFAST_LOCK told.log --token $HOLDFAST_TOKEN
echo x > %[2]s; exec sleep 60`, os.Getenv(binaryEnv), ready)
	done := make(chan result, 1)
	go func() { done <- w.try("", "run", "told", "-o", "json", "--on-lost", "kill", "--", "sh", "-c", script) }()
	await(t, "the appends", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	w.do("", "break", "told", "--reason", "a test", "--actor", "ann")
	r := <-done
	got := lastLine(t, r.errs)
	if r.code != 3 || got.ExitCode != 137 || got.Status != "LEASE_EXPIRED" || got.Loss == nil {
		t.Fatalf("code %d, %+v", r.code, got)
	}
	if x := got.Loss; x.Reason != "broken" || x.Actor != "ann" || x.Why != "a test" || x.LSN == 0 || !x.Final {
		t.Errorf("loss %+v", x)
	}
	if a := got.Loss.LastAppend; a == nil || a.File != "told.log" || a.Offset != 2 || a.Length != 3 || a.Token != got.Token {
		t.Errorf("last append %+v", a)
	}
	breaks := os.Getenv(binaryEnv) + " break $HOLDFAST_LOCK --reason enough --actor ann; exec sleep 60"
	r = w.try("", "run", "text", "--", "sh", "-c", breaks)
	for _, want := range []string{"lock lost: ", "the grant ended at LSN ", "broken by ann: enough", "nothing was appended under it"} {
		if r.code != 3 || !strings.Contains(r.errs, want) {
			t.Errorf("got %+v, want code 3 and %q", r, want)
		}
	}
	if r := w.try("", "run", "told", "-o", "json", "--", "true"); r.code != 0 || lastLine(t, r.errs).Loss != nil {
		t.Errorf("a run that loses nothing: %+v", r)
	}
}

// TestRunIsCutOff pauses all servers under a command that has a daemon. It is warned,
// and has ended with the daemon when the lease does.
func TestRunIsCutOff(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid(1) here")
	}
	w := startDev(t)
	defer w.stop()
	w.primary(0)
	dir := t.TempDir()
	const ttl = 4 * time.Second
	script := fmt.Sprintf(`cd %s; trap 'date > warned' USR1
setsid sh -c 'trap "" TERM; echo $$ > daemon; while :; do sleep 0.1; done' &
while :; do sleep 0.02; done`, dir)
	done := make(chan result, 1)
	go func() {
		done <- w.try("", "run", "cut", "--ttl", ttl.String(), "--grace", "500ms", "--warn", "USR1", "--lost-exit-code", "33", "--", "sh", "-c", script)
	}()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	await(t, "the daemon", func() bool { return read("daemon") != "" })
	resume := w.pause()
	defer resume()
	until := time.Now().Add(ttl) // the last renewal was answered before
	await(t, "the end of the daemon", func() bool {
		_, err := os.Stat("/proc/" + read("daemon"))
		return err != nil
	})
	if late := time.Since(until); late > 0 {
		t.Errorf("the daemon ended %v after the lease", late)
	}
	if read("warned") == "" {
		t.Error("the command was not warned")
	}
	r := <-done
	if r.code != 33 || !strings.Contains(r.errs, "lock in jeopardy: ") || !strings.Contains(r.errs, "ending the command") {
		t.Errorf("got %+v", r)
	}
}
