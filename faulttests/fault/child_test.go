// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/check"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// The environment of a test binary that runs again as a client process, which
// can be frozen: where the servers are, the file of the set, and the child's name.
const (
	childEndpoints = "HOLDFAST_FAULT_CHILD_ENDPOINTS"
	childSet       = "HOLDFAST_FAULT_CHILD_SET"
	childName      = "HOLDFAST_FAULT_CHILD_NAME"
)

const (
	setLock = "set"
	setFile = "set.txt"
	// briefTTL is the lease of a child: the shortest that servers allow.
	briefTTL = time.Second

	// setChildren add so many elements each, and so many of these are frozen.
	setChildren, setElements, setFreezes = 4, 6, 5
)

// childMain is the main of such a process.
func childMain() (code int, is bool) {
	if os.Getenv(childEndpoints) == "" {
		return 0, false
	}
	if err := child(context.Background()); err != nil {
		fmt.Println("error", err)
		return 1, true
	}
	return 0, true
}

// child adds its elements to the set, one under each grant.
func child(ctx context.Context) error {
	client, err := clientlib.New(clientlib.Options{Endpoints: strings.Split(os.Getenv(childEndpoints), ","), Budget: cluster.Patience})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // the process ends
	in := bufio.NewReader(os.Stdin)
	for i := range setElements {
		if err := addElement(ctx, client, in, fmt.Sprintf("%s-%d", os.Getenv(childName), i)); err != nil {
			return err
		}
	}
	return nil
}

// addElement adds one as careless programs do: it reads the set, is frozen, and
// writes without another look at its lease. Then it appends under its token.
func addElement(ctx context.Context, client *clientlib.Client, in *bufio.Reader, element string) error {
	lock, err := client.Acquire(ctx, setLock, clientlib.AcquireOptions{TTL: briefTTL, Wait: clientlib.Forever})
	if err != nil {
		return err
	}
	set, err := os.ReadFile(os.Getenv(childSet))
	if err != nil {
		return err
	}
	fmt.Println("read", element)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := os.WriteFile(os.Getenv(childSet), append(set, element+"\n"...), 0o644); err != nil {
		return err
	}
	fmt.Println("added", element)
	// Attach does not look at the clock first: the servers alone decide.
	switch _, err := client.Attach(lock.Name(), lock.Token()).Append(ctx, setFile, []byte(element+"\n")); {
	case err == nil:
		fmt.Println("accepted", element)
	case errors.Is(err, clientlib.ErrLost):
		fmt.Println("refused", element)
	default:
		fmt.Println("unanswered", element)
	}
	if err := lock.Release(ctx); err != nil && !errors.Is(err, clientlib.ErrLost) {
		return err
	}
	return nil
}

// setChild is one such process, as its parent sees it.
type setChild struct {
	cmd *exec.Cmd
	in  io.Writer
}

// said is one line that a child printed; "" is its end.
type said struct {
	child int
	text  string
}

// TestLockSet is the negative control: a set that only the lock protects loses
// elements when holders are frozen beyond their leases, as the README says, and
// this test would notice if it did not: then the fault is no fault. The protected
// file beside it takes every append under a live token, and no other.
func TestLockSet(t *testing.T) {
	needFaults(t)
	c := cluster.Start(t, options())
	set := t.TempDir() + "/set"
	if err := os.WriteFile(set, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	lines := make(chan said)
	var children []*setChild
	for i := range setChildren {
		children = append(children, startChild(t, c, set, i, lines))
	}
	s := freezeHolders(t, children, lines)
	for _, x := range children {
		if err := x.cmd.Wait(); err != nil {
			t.Errorf("a child: %v", err)
		}
	}
	s.Set, s.File = readLines(t, set), readLines(t, c.File(setFile))
	var r check.Report
	v := s.Check(&r)
	t.Logf("%d added, %d accepted, %d refused; lost by the set: %q", len(s.Added), len(s.Accepted), len(s.Refused), v.Lost)
	for _, bad := range r.Violations() {
		t.Error(bad)
	}
	if len(s.Added) != setChildren*setElements || len(s.Refused) < setFreezes {
		t.Errorf("%d elements added and %d refused, want %d and at least %d", len(s.Added), len(s.Refused), setChildren*setElements, setFreezes)
	}
}

// freezeHolders lets the children go on, but freezes some where they have read the
// set, until the next holder has added an element to it.
func freezeHolders(t *testing.T, children []*setChild, lines <-chan said) (s check.LockSet) {
	t.Helper()
	frozen, next, freezes := -1, -1, 0 // next has the lock behind the frozen one
	thaw := func() {
		signal(t, children[frozen].cmd, syscall.SIGCONT)
		frozen, next = -1, -1
	}
	limit := time.After(2 * time.Minute)
	for running := len(children); running > 0; {
		select {
		case <-limit:
			t.Fatal("the children do not come to an end")
		case x := <-lines:
			word, element, _ := strings.Cut(x.text, " ")
			switch word {
			case "read":
				if frozen >= 0 {
					next = x.child
				} else if freezes < setFreezes && running > 1 {
					freezes++
					frozen = x.child
					freeze(t, children[x.child].cmd)
				}
				if _, err := io.WriteString(children[x.child].in, "go\n"); err != nil {
					t.Errorf("tell child %d to go on: %v", x.child, err)
				}
			case "added":
				s.Added = append(s.Added, element)
				if frozen >= 0 && x.child == next {
					thaw()
				}
			case "accepted":
				s.Accepted = append(s.Accepted, element)
			case "refused":
				s.Refused = append(s.Refused, element)
			case "unanswered":
			case "":
				if running--; running == 1 && frozen >= 0 {
					thaw() // nobody else is left to add anything
				}
			default:
				t.Errorf("child %d said %q", x.child, x.text)
			}
		}
	}
	return s
}

// startChild starts one and passes on what it prints.
func startChild(t *testing.T, c *cluster.Cluster, set string, n int, lines chan<- said) *setChild {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEndpoints+"="+strings.Join(c.Endpoints(), ","), childSet+"="+set, fmt.Sprintf("%s=c%d", childName, n))
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
	go func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- said{n, scan.Text()}
		}
		lines <- said{child: n}
	}()
	return &setChild{cmd: cmd, in: in}
}

func readLines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// freeze stops a process, and returns when all of its threads stand still: until one of
// them has taken the signal, the others go on.
func freeze(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	signal(t, cmd, syscall.SIGSTOP)
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

func signal(t *testing.T, cmd *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
