// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell runs a script, with holdfast as a function and the lock file as $F.
type shell struct {
	w    *world
	t    *testing.T
	file string
	lock string
}

func (w *world) shell(t *testing.T, name string) *shell {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	return &shell{w, t, file, strings.TrimPrefix(file, "/")}
}

func (s *shell) command(script string) (cmd *exec.Cmd, out *bytes.Buffer) {
	cmd = exec.Command("sh", "-c", "holdfast() { "+os.Getenv(binaryEnv)+` "$@"; }; `+script)
	cmd.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+s.w.endpoints, "F="+s.file, "L="+s.lock)
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// run runs a script to its end.
func (s *shell) run(script string) (out string, code int) {
	s.t.Helper()
	cmd, b := s.command(script)
	err := cmd.Run()
	s.t.Logf("%s\n%s[%v]", script, b, err)
	return b.String(), cmd.ProcessState.ExitCode()
}

// want runs a script and compares what it prints.
func (s *shell) want(script, out string) {
	s.t.Helper()
	if got, _ := s.run(script); got != out {
		s.t.Errorf("%s\nprinted %q, want %q", script, got, out)
	}
}

// begin starts a script that prints a line when it has begun; gone waits for its end.
func (s *shell) begin(script string) (cmd *exec.Cmd, out *bytes.Buffer) {
	s.t.Helper()
	ready := s.file + ".ready"
	cmd, out = s.command(script)
	cmd.Env = append(cmd.Env, "READY="+ready)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) //nolint:errcheck // it has ended
	await(s.t, "the script", func() bool { _, err := os.Stat(ready); return err == nil })
	return cmd, out
}

// free waits until the lock is acquired and released again, and returns how long that took.
func (s *shell) free() time.Duration {
	s.t.Helper()
	began := time.Now()
	s.w.do("", "run", "-q", "-w", "60", s.lock, "--", "true")
	return time.Since(began)
}

// held reports whether the lock is held.
func (s *shell) held() bool { return s.w.try("", "run", "-n", s.lock, "--", "true").code == 1 }

// TestFlockOfADescriptor runs scripts that were written for flock(1) with descriptors.
func TestFlockOfADescriptor(t *testing.T) {
	w := startDev(t)
	w.primary(0)
	for name, test := range map[string]func(*shell){
		"until the shell ends": (*shell).untilTheEnd, "inherited": (*shell).inherited, "refused": (*shell).refused, "released": (*shell).released,
		"again": (*shell).again, "nothing is kept open": (*shell).keepsNothingOpen, "mistakes": (*shell).mistakes,
		"one lock": (*shell).oneLock, "at once": (*shell).atOnce, "at once, left": (*shell).atOnceAndLeft, "lost": (*shell).losesIt, "keeper killed": (*shell).keeperKilled, "interrupted": (*shell).interrupted,
	} {
		t.Run(name, func(t *testing.T) { test(w.shell(t, strings.ReplaceAll(name, " ", "-"))) })
	}
}

const ttl5m = "--ttl 300 "

func (s *shell) untilTheEnd() {
	s.want(`exec 9>$F; holdfast flock `+ttl5m+`9 && holdfast run -n "$L" -E 7 -- true 2>&- || echo "code $?"`, "code 7\n")
	if took := s.free(); took > 30*time.Second {
		s.t.Errorf("the shell has ended, and its lock was there for %v", took)
	}
	s.want(`( holdfast flock -n 9 || exit 1; holdfast run -n "$L" -E 7 -- true 2>&- || echo "code $?"; ) 9>$F; holdfast run -w 30 -q "$L" -- echo free`, "code 7\nfree\n")
	s.want(`exec 9>$F; holdfast flock --lock other/name 9; exec 9>&-; holdfast run -w 30 -q other/name -- echo closed`, "closed\n")
}

// inherited: a process in the background that has the descriptor keeps the lock, one without it does not.
func (s *shell) inherited() {
	s.begin(`( holdfast flock ` + ttl5m + `9; sh -c 'while ! test -e $F.end; do sleep 0.05; done' & ) 9>$F; touch $READY; sleep 60`)
	for range 5 {
		if !s.held() {
			s.t.Fatal("the lock is free while a process has the descriptor")
		}
		<-time.After(100 * time.Millisecond)
	}
	if err := os.WriteFile(s.file+".end", nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.free()
	s.want(`( holdfast flock 9; sleep 60 9>&- > /dev/null 2>&1 & ) 9>$F; holdfast run -w 30 -q "$L" -- echo free`, "free\n")
}

func (s *shell) refused() {
	token := strings.TrimSpace(s.w.do("", "acquire", s.lock, "--ttl", "60"))
	for flags, code := range map[string]string{"-n": "1", "-n -E 42": "42", "-w 0.2": "1", "-w 0.2 -E 42": "42", "-sn": "1"} {
		s.want(`exec 9>$F; holdfast flock `+flags+` 9 2> /dev/null; echo $?`, code+"\n")
	}
	if out, code := s.run(`exec 9>$F; holdfast -o json flock -n 9`); code != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"status":"HELD"`) || !strings.Contains(out, `"exit_code":1`) {
		s.t.Errorf("code %d, %q", code, out)
	}
	if out, _ := s.run(`exec 9>$F; holdfast flock -w 1.5 9`); !strings.Contains(out, "waiting for lock "+s.lock+": held by") || !strings.Contains(out, ", 0 before you in the queue") {
		s.t.Errorf("a wait printed %q", out)
	}
	s.w.do("", "release", s.lock, "--token", token)
}

func (s *shell) released() {
	s.want(`exec 9>$F; holdfast flock `+ttl5m+`9; holdfast flock -u 9; holdfast run -n "$L" -- echo free; holdfast flock -n 9 && holdfast run -n "$L" -E 7 -- true 2>&- || echo "code $?"; holdfast flock -u 9; holdfast flock -u 9; echo "code $?"`,
		"free\ncode 7\ncode 0\n")
}

func (s *shell) again() {
	show := `holdfast show "$L" -o json | grep -o '"token":[0-9]*' | head -1; `
	out, _ := s.run(`exec 9>$F; holdfast flock 9; ` + show + `holdfast flock 9; ` + show + `holdfast flock -n -s 9; ` + show + `holdfast run -sn "$L" -- echo shared; holdfast flock -x -n 9 && holdfast run -sn -E 7 "$L" -- true 2>&- || echo "code $?"`)
	lines := strings.Split(out, "\n")
	if len(lines) != 6 || lines[0] != lines[1] || lines[1] == lines[2] || lines[3] != "shared" || lines[4] != "code 7" {
		s.t.Errorf("printed %q", lines)
	}
}

// oneLock: a descriptor has one, and another name is refused; of the same one the body is printed again.
func (s *shell) oneLock() {
	body := `holdfast -o json flock --lock $L.a 9; `
	out, _ := s.run(`exec 9>$F; ` + body + body + `holdfast flock --lock $L.b 9; echo "code $?"; holdfast run -n $L.b -- echo b is free; holdfast flock -u --lock $L.b 9 2>&-; echo "code $?"; rm $F; holdfast flock -u 9; holdfast flock --lock $L.b 9; holdfast run -n $L.a -- echo a is free; holdfast run -n $L.b -E 7 -- true 2>&-; echo "code $?"`)
	lines := strings.Split(out, "\n")
	if len(lines) != 9 || !strings.Contains(lines[0], `.a","token":`) || lines[1] != lines[0] ||
		lines[2] != fmt.Sprintf("holdfast: flock: descriptor 9 has lock %s.a, and not %[1]s.b: release it with holdfast flock -u 9, or use another descriptor", s.lock) ||
		strings.Join(lines[3:], ",") != "code 2,b is free,code 2,a is free,code 7," {
		s.t.Errorf("printed %q", lines)
	}
}

// atOnce: two commands of one descriptor ask for its lock at the same time, and have it both.
func (s *shell) atOnce() {
	s.want(`exec 9>$F; holdfast flock `+ttl5m+`9 & a=$!; holdfast flock `+ttl5m+`9; echo "code $?"; wait $a; echo "code $?"; holdfast run -n "$L" -E 7 -- true 2>&-; echo "code $?"`,
		"code 0\ncode 0\ncode 7\n")
	s.free()
}

// atOnceAndLeft: the shell does not wait for either.
func (s *shell) atOnceAndLeft() {
	token := strings.TrimSpace(s.w.do("", "acquire", s.lock, "--ttl", "60"))
	flock := os.Getenv(binaryEnv) + ` flock ` + ttl5m + `9 > /dev/null 2>&1 & `
	s.run(`exec 9>$F; ` + flock + flock + `sleep 1`)
	s.w.do("", "release", s.lock, "--token", token)
	if took := s.free(); took > 30*time.Second {
		s.t.Errorf("the lock was there for %v after its shell", took)
	}
}

// keepsNothingOpen: what stays in the background has none of the shell's pipes.
func (s *shell) keepsNothingOpen() {
	s.want(`exec 9>$F; out=$(holdfast flock `+ttl5m+`9 2>&1); echo "none:$out" | cat; holdfast run -n "$L" -E 7 -- true 2>&- || echo "code $?"; mkfifo $F.pipe; cat $F.pipe & exec 8>$F.pipe; holdfast flock -u 9; holdfast flock 9; exec 8>&-; wait; echo ended`,
		"none:\ncode 7\nended\n")
	if out, _ := s.run(`exec 9>$F; holdfast -o json flock --lock named 9`); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"lock":"named","token":`) {
		s.t.Errorf("printed %q", out)
	}
}

func (s *shell) mistakes() {
	for script, words := range map[string]string{
		`holdfast flock 77`: "descriptor 77 is not open",
		"exec " + os.Getenv(binaryEnv) + ` flock 9 9>$F`:             "only this command has descriptor 9 open",
		`exec 9>$F; rm $F; holdfast flock 9`:                         "use --lock NAME",
		`exec 9>$F; holdfast flock --warn USR1 9`:                    "--warn is for a command",
		`holdfast flock -u name true`:                                "go with a descriptor",
		`exec 9>$F; holdfast flock --grace 20 9`:                     "at most half of --ttl 30s",
		`exec 9>$F; holdfast --endpoints nowhere.invalid:x flock 9 `: "use HOST:PORT",
	} {
		if out, code := s.run(script); code != 2 || !strings.Contains(out, words) {
			s.t.Errorf("%s: code %d, %q, want 2 and %q", script, code, out, words)
		}
	}
}

// losesIt: the shell is ended, and hears why.
func (s *shell) losesIt() {
	cmd, out := s.begin(`exec 9>$F; holdfast flock ` + ttl5m + `9; touch $READY; sleep 60`)
	s.w.do("", "break", s.lock, "--reason", "a test", "--actor", "ann@h9")
	err := cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != syscall.SIGTERM {
		s.t.Errorf("the shell whose lock was broken: %v, want SIGTERM", err)
	}
	if !strings.Contains(out.String(), "lock lost") {
		s.t.Errorf("it printed %q", out)
	}
	s.free()
}

// keeperKilled: the guard ends the shell, and releases the lock only then.
func (s *shell) keeperKilled() {
	cmd, _ := s.begin(`exec 9>$F; holdfast flock ` + ttl5m + `9; trap "" TERM; touch $READY; while :; do sleep 1; done`)
	keeper := s.keeper()
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	took := s.free()
	if !(devServer{PID: cmd.Process.Pid}).ended() {
		s.t.Error("the lock is another's, and the shell runs")
	}
	s.t.Logf("%v from the kill of the keeper to the next holder, under a lease of 5m", took.Round(time.Millisecond))
	if took > 30*time.Second {
		s.t.Errorf("the lock was there for %v", took)
	}
	cmd.Wait() //nolint:errcheck // killed
}

// keeper finds the process that holds the lock, by its name in ps.
func (s *shell) keeper() (pid int) {
	s.t.Helper()
	await(s.t, "the keeper", func() bool {
		names, err := filepath.Glob("/proc/[0-9]*/comm")
		if err != nil {
			s.t.Fatal(err)
		}
		for _, name := range names {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			if b, _ := os.ReadFile(name); string(b) == "holdfast-holds\n" && bytes.Contains(line, []byte(s.lock)) {
				pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
			}
		}
		return pid != 0
	})
	return pid
}

// interrupted: a Ctrl-C while flock waits.
func (s *shell) interrupted() {
	token := strings.TrimSpace(s.w.do("", "acquire", s.lock, "--ttl", "60"))
	queue := func(n int) func() bool {
		return func() bool {
			return strings.Contains(s.w.try("", "show", s.lock, "-o", "json").out, fmt.Sprintf(`"queue_length":%d`, n))
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		os.Remove(s.file + ".ready") //nolint:errcheck // it may not be there
		cmd, _ := s.begin(`exec 9>$F; trap : INT; touch $READY; ` + os.Getenv(binaryEnv) + ` flock 9; exit $?`)
		await(s.t, "the queue", queue(1))
		children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			s.t.Fatal(err)
		}
		flock, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			s.t.Fatal(err)
		}
		if err := syscall.Kill(flock, sig); err != nil {
			s.t.Fatal(err)
		}
		cmd.Wait() //nolint:errcheck // the code says it
		if want := 128 + int(sig); cmd.ProcessState.ExitCode() != want {
			s.t.Errorf("%v: exit code %d, want %d", sig, cmd.ProcessState.ExitCode(), want)
		}
		await(s.t, "the end of the queue", queue(0))
	}
	s.w.do("", "release", s.lock, "--token", token)
}
