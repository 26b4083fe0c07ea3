// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// fleet has the servers that a supervisor started, which are no processes.
type fleet struct {
	t       *testing.T
	began   time.Time
	signals chan os.Signal
	ended   chan error

	mu  sync.Mutex
	log []string // what happened, and when
	of  map[cluster.CellID]*fake
}

// now returns the server of a cell.
func (f *fleet) now(k cluster.CellID) *fake {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[k]
}

// fake is a server that ends when it is told an exit code.
type fake struct {
	of    *fleet
	k     cluster.CellID
	ready func()
	end   chan int
	hangs atomic.Bool // not even SIGKILL ends it
}

func (f *fake) Signal(sig os.Signal) {
	f.of.note("%v gets %v", f.k, sig)
	if sig == syscall.SIGKILL && !f.hangs.Load() {
		f.end <- -1
	}
}

func (f *fake) Wait() (int, string) {
	code := <-f.end
	return code, fmt.Sprint("code ", code)
}

func (f *fleet) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf("%v ", time.Since(f.began))+fmt.Sprintf(format, args...))
}

// run has a supervisor run the servers of two cells.
func run(t *testing.T) *fleet {
	f := &fleet{t: t, began: time.Now(), signals: make(chan os.Signal, 2), ended: make(chan error, 1), of: map[cluster.CellID]*fake{}}
	opt := Options{
		Cells: []cluster.CellID{0, 1}, GiveUp: 78, Log: zerolog.New(t.Output()), Ready: func() { f.note("ready") },
		start: func(k cluster.CellID, ready func()) (server, error) {
			f.note("%v starts", k)
			x := &fake{of: f, k: k, ready: ready, end: make(chan int, 1)}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.of[k] = x
			return x, nil
		},
	}
	go func() { f.ended <- Run(f.signals, opt) }()
	synctest.Wait()
	return f
}

// after lets time pass, and returns what happened since the last call.
func (f *fleet) after(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	now := strings.Join(f.log, "; ")
	f.log = nil
	return now
}

func (f *fleet) want(after time.Duration, want string) {
	f.t.Helper()
	if got := f.after(after); got != want {
		f.t.Errorf("%q, want %q", got, want)
	}
}

// finish has the supervisor end, with this error.
func (f *fleet) finish(want error) {
	f.t.Helper()
	synctest.Wait()
	select {
	case err := <-f.ended:
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			f.t.Errorf("it ended with %v, want %v", err, want)
		}
	default:
		f.t.Fatal("it has not ended")
	}
}

// TestPauseGrows: a server that ends again and again is started after longer and longer pauses, and the others are left alone; where it ran well for
// a while, the next pause is short again.
func TestPauseGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t)
		f.want(0, "0s cell 0 starts; 0s cell 1 starts")
		at := time.Duration(0)
		for _, pause := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
			f.now(1).end <- 70
			f.want(pause-time.Millisecond, "")
			at += pause
			f.want(time.Millisecond, fmt.Sprintf("%v cell 1 starts", at))
			if at == 250*time.Millisecond {
				f.now(0).ready()
				f.want(0, "250ms ready")
			}
		}
		f.want(ranWell, "")
		f.now(1).end <- 0
		f.want(250*time.Millisecond, fmt.Sprintf("%v cell 1 starts", at+ranWell+250*time.Millisecond))
		f.signals <- syscall.SIGINT
		f.after(0)
		f.now(0).end <- 0
		f.now(1).end <- 0
		f.finish(nil)
	})
}

// TestReadyIsToldOnce: when each server is ready or has ended, and where one is late, without it.
func TestReadyIsToldOnce(t *testing.T) {
	for late, at := range map[bool]string{false: "5s ready", true: "10s ready"} {
		synctest.Test(t, func(t *testing.T) {
			f := run(t)
			f.after(5 * time.Second)
			f.now(0).ready()
			f.now(0).ready()
			if !late {
				f.now(1).ready()
				f.want(0, at)
			} else {
				f.want(readyWait-5*time.Second, at)
				f.now(1).ready()
			}
			f.want(time.Hour, "")
			f.signals <- syscall.SIGTERM
			f.signals <- syscall.SIGTERM
			f.after(0)
			f.finish(ErrKilled)
		})
	}
}

// TestSignalsArePassedOn, SIGHUP each time, the order to end once, and the second one kills. A server whose end does not come, because it hangs in the
// filesystem, holds the supervisor up no longer than killWait.
func TestSignalsArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t)
		f.after(0)
		for range 2 {
			f.signals <- syscall.SIGHUP
			f.want(0, "0s cell 0 gets hangup; 0s cell 1 gets hangup")
		}
		f.now(0).end <- 70
		f.after(time.Millisecond)
		f.signals <- syscall.SIGINT
		f.want(0, "1ms cell 1 gets terminated")
		f.want(time.Minute, "") // neither started again, nor in a hurry
		f.now(1).hangs.Store(true)
		f.signals <- syscall.SIGINT
		f.want(0, "1m0.001s cell 1 gets killed")
		f.after(killWait)
		f.finish(ErrKilled)
		f.now(1).end <- -1 // an hour late
	})
}

// TestRemovedServersAreNotStartedAgain, and when no other is left, the supervisor ends, too.
func TestRemovedServersAreNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t)
		f.now(0).ready()
		f.after(0)
		f.now(1).end <- 78
		f.want(time.Hour, "0s ready")
		f.now(0).end <- 78
		f.after(0)
		f.finish(ErrGivenUp)
	})
}

// TestEnvironment: the service manager hears one process, and only a child takes itself for one.
func TestEnvironment(t *testing.T) {
	got := environment([]string{"A=1", "NOTIFY_SOCKET=/run/x", "WATCHDOG_USEC=3", "WATCHDOG_PID=4", "HOLDFAST_SUPERVISOR=1", "B=NOTIFY_SOCKET=2"}, "@y")
	if want := []string{"A=1", "WATCHDOG_USEC=3", "B=NOTIFY_SOCKET=2", "NOTIFY_SOCKET=@y", fmt.Sprintf("HOLDFAST_SUPERVISOR=%d", os.Getpid())}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for value, want := range map[string]bool{"": false, fmt.Sprint(os.Getpid()): false, fmt.Sprint(os.Getppid()): true} {
		if Supervises(func(string) string { return value }) != want {
			t.Errorf("%q: not %t", value, want)
		}
	}
}

// processes runs real servers, and returns what they write, and how to have them end.
func processes(t *testing.T, ready func()) (wrote func() string, end func()) {
	t.Helper()
	t.Setenv(childEnv, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() {
		ended <- Run(signals, Options{
			Cells: []cluster.CellID{0, 1}, GiveUp: 78, Log: zerolog.New(t.Output()), Output: out, Ready: ready,
			Command: func(k cluster.CellID) []string { return []string{self, k.String()} },
		})
	}()
	wrote = func() string {
		b, err := os.ReadFile(out.Name())
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	return wrote, func() {
		signals <- syscall.SIGTERM
		if err := errors.Join(<-ended, out.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestProcesses: real ones say that they are ready, and are ended; what they write comes out.
func TestProcesses(t *testing.T) {
	began, ready := time.Now(), make(chan struct{})
	wrote, end := processes(t, func() { close(ready) })
	<-ready
	if time.Since(began) >= readyWait {
		t.Error("they did not say that they are ready")
	}
	end()
	if got := wrote(); !strings.Contains(got, "cell 0 has a supervisor: true\n") || !strings.Contains(got, "cell 1 has a supervisor: true\n") {
		t.Errorf("they wrote %q", got)
	}
}

// TestStuckServerIsEnded, where the service manager has a watchdog: one that was ready and says nothing more. It says where it is stuck, is killed if
// it does not end by that, as that of cell 1 here, and is started again.
func TestStuckServerIsEnded(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "100000")
	wrote, end := processes(t, func() {})
	for late := time.After(30 * time.Second); strings.Count(wrote(), "cell 0 has a supervisor") < 2 || strings.Count(wrote(), "cell 1 has a supervisor") < 2; {
		select {
		case <-late:
			t.Fatalf("a server is not started again: %s", wrote())
		case <-time.After(10 * time.Millisecond):
		}
	}
	end()
	if got := wrote(); !strings.Contains(got, "SIGABRT") || !strings.Contains(got, "goroutine ") {
		t.Errorf("it wrote %q", got)
	}
}

// TestServersEndWithTheirSupervisor, also where that is killed: else those that the next one starts would find their ports taken.
func TestServersEndWithTheirSupervisor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+supervises), w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // Read would say so
	for in, began := bufio.NewScanner(r), 0; began < 2 && in.Scan(); began++ {
		t.Log(in.Text())
	}
	cmd.Process.Kill()                                //nolint:errcheck // Wait says more
	cmd.Wait()                                        //nolint:errcheck // it was killed
	if _, err := io.Copy(io.Discard, r); err != nil { // until the last one that can write there has ended
		t.Errorf("its servers live on: %v", err)
	}
	r.Close() //nolint:errcheck // it was read
}

// childEnv has the test binary be a server, or a supervisor.
const childEnv, supervises = "HOLDFAST_TEST_CHILD", "supervisor"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case supervises:
		os.Setenv(childEnv, "1") //nolint:errcheck // it is a good name
		fmt.Fprintln(os.Stderr, Run(nil, Options{
			Cells: []cluster.CellID{0, 1}, Log: zerolog.Nop(), Output: os.Stderr, Ready: func() {},
			Command: func(k cluster.CellID) []string { return []string{os.Args[0], k.String()} },
		}))
		return
	}
	fmt.Fprintf(os.Stderr, "%s has a supervisor: %t\n", os.Args[1], Supervises(os.Getenv))
	if os.Args[1] == cluster.CellID(1).String() {
		signal.Ignore(syscall.SIGABRT)
	}
	if _, err := daemon.SdNotify(false, "STATUS=x\n"+daemon.SdNotifyReady); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	<-time.After(time.Minute) // a signal ends it before
}
