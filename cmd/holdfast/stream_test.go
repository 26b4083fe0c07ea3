// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// streamBytes returns how much TestStreamThroughKills appends.
func streamBytes(t *testing.T) int {
	if f := flag.Lookup("test.count"); f == nil || os.Getenv("HOLDFAST_STREAM_MB") == "" {
		return 20 << 20
	}
	mb, err := strconv.Atoi(os.Getenv("HOLDFAST_STREAM_MB"))
	if err != nil {
		t.Fatal(err)
	}
	return mb << 20
}

// streamer is a `holdfast append` that reads a pipe.
type streamer struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	out, errs bytes.Buffer
}

func (w *world) streamer(args ...string) *streamer {
	w.t.Helper()
	s := &streamer{cmd: exec.Command(os.Getenv(binaryEnv), append([]string{"append", "--endpoints", w.endpoints}, args...)...)}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errs
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.cmd.Process.Kill() }) //nolint:errcheck // it has ended
	return s
}

// peakMemory returns how much memory a running process used at most, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// kill kills the primary, and starts it again when another one serves.
func (w *world) kill(commands map[uint32][]string) {
	t := w.t
	t.Helper()
	id, pid := w.primary(0)
	if commands[id] == nil {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		commands[id] = strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.primary(id)
	again := exec.Command(commands[id][0], commands[id][1:]...)
	again.Stderr = w.logs
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		again.Process.Kill() //nolint:errcheck // it has ended
		again.Wait()         //nolint:errcheck // likewise
	})
	await(t, "the return of the killed server", func() bool {
		for _, s := range w.status().Servers {
			if s.ID == id && s.Role == "replica" && s.PID == again.Process.Pid {
				return true
			}
		}
		return false
	})
}

// TestStreamThroughKills appends a stream while one primary after the other is killed, and another
// client appends to the same file. Every line is there once and in its order. HOLDFAST_STREAM_MB
// is how much is appended, instead of 20 MB.
func TestStreamThroughKills(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	s := w.streamer("log", "a/log")
	total := streamBytes(t)
	killed := make(chan int)
	stop := make(chan struct{})
	go func() { // what the producer does goes on while servers die
		defer close(killed)
		commands := map[uint32][]string{}
		for n := 1; ; n++ {
			w.kill(commands)
			select {
			case killed <- n:
			case <-stop:
				return
			}
		}
	}()
	var want bytes.Buffer
	kills, peak := 0, 0
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for line := 0; want.Len() < total || kills < 3; line++ {
		text := fmt.Sprintf("%d %s\n", line, strings.Repeat("x", line%300))
		want.WriteString(text)
		if _, err := io.WriteString(s.in, text); err != nil {
			t.Fatalf("line %d: %v\n%s", line, err, &s.errs)
		}
		if line%100 == 0 && (want.Len() >= total || want.Len() > (kills+1)*total/4) {
			<-pace.C // the kills shall come within the stream
		}
		if line%1000 == 0 {
			peak = max(peak, peakMemory(t, s.cmd.Process.Pid))
		}
		select {
		case n, open := <-killed:
			if kills = n; !open {
				t.FailNow()
			}
			if r := w.try(fmt.Sprintf("other %d\n", n), "append", "log", "a/log"); r.code != 0 || r.out != "" {
				t.Errorf("another append: %+v", r)
			}
		default:
		}
	}
	close(stop)
	if err := s.in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil || s.out.Len() > 0 {
		t.Errorf("append: %v, output %q, errors %q", err, &s.out, &s.errs)
	}
	for range killed { // the last kill and its repair
	}
	var got bytes.Buffer
	for line := range strings.Lines(w.file("a/log")) {
		if !strings.HasPrefix(line, "other ") {
			got.WriteString(line)
		}
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("the file has %d bytes of the stream, want %d: they differ from %d on", got.Len(), want.Len(), common(got.Bytes(), want.Bytes()))
	}
	t.Logf("%d kills, %d bytes, %d MB of memory", kills, want.Len(), peak>>20)
	if peak > 80<<20 {
		t.Errorf("append used %d MB of memory", peak>>20)
	}
}

// common returns how many bytes two texts have in common at their beginning.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// TestStreamIsSeenAtOnce wants a line in the file while its writer lives.
func TestStreamIsSeenAtOnce(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	s := w.streamer("log", "a/log", "-v")
	w.do("", "append", "log", "a/log") // an empty input is none
	for i := range 3 {
		began := time.Now()
		if _, err := fmt.Fprintf(s.in, "line %d\nand", i); err != nil {
			t.Fatal(err)
		}
		await(t, "the line", func() bool {
			b, err := os.ReadFile(filepath.Join(w.dir, "files/a/log"))
			return err == nil && strings.HasSuffix(string(b), fmt.Sprintf("line %d\n", i))
		})
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("line %d: was not there for %v", i, took)
		}
	}
	// A signal ends the input; what was read is not lost.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.cmd.Wait() //nolint:errcheck // the code says it
	equal(t, "exit code", s.cmd.ProcessState.ExitCode(), 130)
	equal(t, "file", w.file("a/log"), "line 0\nandline 1\nandline 2\nand")
	if !strings.Contains(s.errs.String(), "the first 30 bytes of the standard input (3 lines) are certainly in a/log") || !strings.Contains(s.errs.String(), "tail -c +31 INPUT | holdfast append log a/log") {
		t.Errorf("errors: %s", &s.errs)
	}
	r := w.try("more\n", "append", "log", "a/log", "-v")
	if r.code != 0 || !strings.HasPrefix(r.out, "a/log: 1 line in 1 append, up to LSN ") {
		t.Errorf("append -v: %+v", r)
	}
	r = w.try("more\n", "append", "log", "a/log", "--whole", "-v")
	if r.code != 0 || !strings.HasPrefix(r.out, "a/log: 5 bytes at offset 35, ") {
		t.Errorf("append --whole -v: %+v", r)
	}
	token := strings.TrimSpace(w.do("", "acquire", "log"))
	w.do("under it\n", "append", "log", "a/log", "--token", token)
	w.do("", "break", "log", "--reason", "a test")
	r = w.try("too late\n", "append", "log", "a/log", "--token", token, "-o", "json")
	if r.code != 3 || !strings.Contains(r.out, `"lines":0,"bytes":0`) {
		t.Errorf("append under a broken lock: %+v", r)
	}
	r = w.try("one\n"+strings.Repeat("x", 1<<20)+"\n", "append", "log", "a/log")
	if r.code != 2 || !strings.Contains(r.errs, "line 2 of the standard input has more than 1048576 bytes") || !strings.Contains(r.errs, "tail -c +5 INPUT | holdfast append --split log a/log") {
		t.Errorf("append of a long line: %+v", r)
	}
	w.do(strings.Repeat("x", 1<<20)+"\n", "append", "log", "b/log", "--split")
	equal(t, "size of a line that was split", len(w.file("b/log")), 1<<20+1)
}
