// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// The environment of a test binary that runs again as a client process, which
// can be frozen: where the servers are, and the file of the counter.
const (
	childEndpoints = "HOLDFAST_FAULT_CHILD_ENDPOINTS"
	childCounter   = "HOLDFAST_FAULT_CHILD_COUNTER"
)

const (
	counterLock = "counter"
	counterFile = "counter.txt"
	// briefTTL is the lease of the child: the shortest that servers allow.
	briefTTL = time.Second
)

// childMain is the main of such a process.
func childMain() (code int, is bool) {
	if os.Getenv(childEndpoints) == "" {
		return 0, false
	}
	if err := child(context.Background()); err != nil {
		fmt.Println("error:", err)
		return 1, true
	}
	return 0, true
}

// child increments the counter under the lock as careless programs do: it reads,
// is frozen, and writes without another look at its lease. Then it appends under its token.
func child(ctx context.Context) error {
	client, err := clientlib.New(clientlib.Options{Endpoints: strings.Split(os.Getenv(childEndpoints), ",")})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // the process ends
	lock, err := client.Acquire(ctx, counterLock, clientlib.AcquireOptions{TTL: briefTTL})
	if err != nil {
		return err
	}
	n, err := readCounter(os.Getenv(childCounter))
	if err != nil {
		return err
	}
	fmt.Println("read")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := writeCounter(os.Getenv(childCounter), n+1); err != nil {
		return err
	}
	// Attach does not look at the clock first: the servers alone decide.
	if _, err := client.Attach(lock.Name(), lock.Token()).Append(ctx, counterFile, []byte("child\n")); err != nil {
		fmt.Println("append refused:", err)
		return nil
	}
	fmt.Println("append accepted")
	return nil
}

func readCounter(name string) (int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

func writeCounter(name string, n int) error {
	return os.WriteFile(name, []byte(strconv.Itoa(n)), 0o644)
}

// TestFrozenHolder is the negative control: a counter that is protected by the
// lock alone loses an update when its holder is frozen beyond its lease, as the README
// says, and this test would notice if it did not: then the fault is no fault. The
// protected file beside it takes the one append and refuses the other.
func TestFrozenHolder(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	counter := t.TempDir() + "/counter"
	if err := writeCounter(counter, 0); err != nil {
		t.Fatal(err)
	}
	said, tell, cmd := startChild(t, c, counter)
	if line := nextLine(t, said); line != "read" {
		t.Fatalf("the child said %q", line)
	}
	signal(t, cmd, syscall.SIGSTOP)

	client := newClient(t, c)
	lock, err := client.Acquire(t.Context(), counterLock, clientlib.AcquireOptions{Wait: cluster.Patience})
	if err != nil {
		t.Fatalf("the lock does not come after its holder's lease: %v", err)
	}
	n, err := readCounter(counter)
	_, appendErr := lock.Append(t.Context(), counterFile, []byte("parent\n"))
	if err := errors.Join(err, writeCounter(counter, n+1), appendErr, lock.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	tell()
	signal(t, cmd, syscall.SIGCONT)
	if line := nextLine(t, said); !strings.HasPrefix(line, "append refused:") {
		t.Errorf("the child said %q, want its append to be refused", line)
	} else {
		t.Log(line)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
	if n, err := readCounter(counter); err != nil || n != 1 {
		t.Errorf("two increments under a lock made %d (%v): no update was lost, so this control controls nothing", n, err)
	}
	if b, err := os.ReadFile(c.File(counterFile)); err != nil || string(b) != "parent\n" {
		t.Errorf("the protected file holds %q (%v), want the parent's line alone", b, err)
	}
}

func startChild(t *testing.T, c *cluster.Cluster, counter string) (said *bufio.Reader, tell func(), cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEndpoints+"="+strings.Join(c.Endpoints(), ","), childCounter+"="+counter)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(out), func() {
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Errorf("tell the child to go on: %v", err)
		}
	}, cmd
}

func nextLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the child ended: %v %q", err, line)
	}
	return strings.TrimSpace(line)
}

func signal(t *testing.T, cmd *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
