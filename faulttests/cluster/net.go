// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	hf "github.com/holdfast-lock/holdfast/shared/cluster"
)

// Net is a network of its own: a namespace for each of three servers, a bridge,
// and the test itself, which has two addresses on it. Clients use one of them
// and are subject to every fault. The harness observes from the other, which is
// never cut off, so that it can query a server that nothing else reaches.
//
// Everything is inside the network namespace of the test's process, see
// Inside. Nothing is connected to the machine's network, and nothing remains
// after the end of the process.
type Net struct {
	t      testing.TB
	number int // among those of the process
	web    *http.Client
}

const (
	// insideNet marks a test process that runs inside a network of its own.
	insideNet = "HOLDFAST_FAULT_INSIDE_NET"

	clientHost   = 254
	observerHost = 253
	netServers   = 3
	mostNets     = 250
)

// Inside reports whether this process has a network namespace of its own. If it has
// none, Inside runs the calling test in a process that has one, with args as further
// arguments for the test binary, takes over its result, and returns false: the
// caller then returns. It skips the test if that is impossible.
func Inside(t *testing.T, args ...string) bool {
	t.Helper()
	if os.Getenv(insideNet) != "" {
		furnish(t)
		return true
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("needs root on Linux to make network namespaces")
	}
	for _, tool := range []string{"ip", "iptables", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs network tools: ", err)
		}
	}
	// What comes last holds. The two files are written by the process outside.
	all := slices.Concat(os.Args[1:], []string{
		"-test.run=" + only(t), "-test.v=true", "-test.count=1", "-test.testlogfile=", "-test.coverprofile=",
	}, args)
	cmd := exec.Command(os.Args[0], all...)
	cmd.SysProcAttr = isolatedAttr()
	cmd.Env = append(os.Environ(), insideNet+"=1")
	var said bytes.Buffer
	cmd.Stdout = io.MultiWriter(t.Output(), &said)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	switch {
	case err != nil:
		t.Errorf("inside a network of its own: %v", err)
	case strings.Contains(said.String(), "--- SKIP: "+t.Name()+" "):
		t.Skip("skipped inside a network of its own, see above")
	case !strings.Contains(said.String(), "--- PASS: "+t.Name()+" "):
		t.Error("the process inside a network of its own did not run the test")
	}
	return false
}

// only is the pattern that selects the test, and of its subtests those that were asked for.
func only(t *testing.T) string {
	pattern := "^" + t.Name() + "$"
	if _, sub, given := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); given {
		pattern += "/" + sub
	}
	return pattern
}

// furnish makes what the namespaces need: a /run of this process alone, where ip
// keeps their names, and a loopback device.
func furnish(t *testing.T) {
	t.Helper()
	if err := errors.Join(run("mount", "-t", "tmpfs", "holdfast-fault", "/run"), run("ip", "link", "set", "lo", "up")); err != nil {
		t.Skip("cannot furnish a network namespace here: ", err)
	}
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// NewNet makes a network without faults. The process must be Inside; it may make
// several. It skips the test if the kernel does not support it.
func NewNet(t testing.TB) *Net {
	t.Helper()
	if os.Getenv(insideNet) == "" {
		t.Fatal("NewNet is for tests that ask cluster.Inside first")
	}
	n := &Net{t: t}
	var err error
	for n.number = 1; n.number <= mostNets; n.number++ {
		if err = run("ip", "link", "add", n.bridge(), "type", "bridge"); err == nil || !strings.Contains(err.Error(), "File exists") {
			break
		}
	}
	if err != nil {
		t.Skip("cannot make a bridge here: ", err)
	}
	t.Cleanup(n.remove)
	if err := n.build(); err != nil {
		t.Fatal(err)
	}
	if err := n.probe(); err != nil {
		t.Skip("cannot filter packets here: ", err)
	}
	from := &net.TCPAddr{IP: net.ParseIP(n.host(observerHost))}
	n.web = &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext}}
	t.Cleanup(n.web.CloseIdleConnections)
	return n
}

func (n *Net) build() error {
	err := errors.Join(
		run("ip", "address", "add", n.host(clientHost)+"/24", "dev", n.bridge()),
		run("ip", "address", "add", n.host(observerHost)+"/24", "dev", n.bridge()),
		run("ip", "link", "set", n.bridge(), "up"),
	)
	for i := range netServers {
		id := hf.ServerID(i + 1)
		ns, cable := n.namespace(id), n.cable(id)
		err = errors.Join(err,
			run("ip", "netns", "add", ns),
			run("ip", "link", "add", cable, "type", "veth", "peer", "name", n.plug(id), "netns", ns),
			run("ip", "link", "set", cable, "master", n.bridge(), "up"),
			run("ip", "-netns", ns, "address", "add", n.Host(id)+"/24", "dev", n.plug(id)),
			run("ip", "-netns", ns, "link", "set", n.plug(id), "up"),
			run("ip", "-netns", ns, "link", "set", "lo", "up"),
		)
	}
	return err
}

// probe tries the kinds of rules that faults are made of.
func (n *Net) probe() error {
	return errors.Join(
		n.rule(1, "-A", "INPUT", "-s", n.Host(2), "-j", "DROP"),
		n.rule(1, slices.Concat([]string{"-A", "INPUT"}, random(0.5))...),
		n.rule(1, "-F"),
	)
}

// remove is for processes that continue: what it misses ends with the process. The
// kernel takes its time to end a namespace, so cables go first: the number is free then.
func (n *Net) remove() {
	n.MendAll()
	for i := range netServers {
		id := hf.ServerID(i + 1)
		if err := errors.Join(run("ip", "link", "delete", n.cable(id)), run("ip", "netns", "delete", n.namespace(id))); err != nil {
			n.t.Log(err)
		}
	}
	if err := run("ip", "link", "delete", n.bridge()); err != nil {
		n.t.Log(err)
	}
}

// Host returns a server's address, of the range for benchmarks (RFC 2544), which no
// real network uses.
func (n *Net) Host(id hf.ServerID) string { return n.host(int(id)) }

func (n *Net) host(last int) string { return fmt.Sprintf("198.18.%d.%d", n.number, last) }

func (n *Net) bridge() string { return fmt.Sprintf("hf%d", n.number) }

func (n *Net) namespace(id hf.ServerID) string { return fmt.Sprintf("hf%d-%d", n.number, id) }

// cable is the end of a server's cable at the bridge.
func (n *Net) cable(id hf.ServerID) string { return fmt.Sprintf("%s.%d", n.bridge(), id) }

// plug is the one device of a server, in its namespace.
func (n *Net) plug(id hf.ServerID) string { return fmt.Sprintf("plug%d.%d", n.number, id) }

// enter makes a command run in a server's namespace, under its own process ID.
func (n *Net) enter(id hf.ServerID, cmd *exec.Cmd) *exec.Cmd {
	inside := exec.Command("ip", slices.Concat([]string{"netns", "exec", n.namespace(id), cmd.Path}, cmd.Args[1:])...)
	inside.Env, inside.SysProcAttr = cmd.Env, cmd.SysProcAttr
	return inside
}

// rule changes the packet filter of a server's namespace.
func (n *Net) rule(id hf.ServerID, args ...string) error {
	return run("ip", slices.Concat([]string{"netns", "exec", n.namespace(id), "iptables", "-w"}, args)...)
}

// strike adds a rule to a server's filter, and returns what takes it away again.
func (n *Net) strike(id hf.ServerID, rule ...string) (mend func()) {
	n.t.Helper()
	if err := n.rule(id, slices.Concat([]string{"-A"}, rule)...); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		n.t.Helper()
		if err := n.rule(id, slices.Concat([]string{"-D"}, rule)...); err != nil {
			n.t.Error(err)
		}
	}
}

// Cut drops what one server sends to another. The other direction stays open.
// Like every fault, it lasts until mend is called, which may be called once.
func (n *Net) Cut(from, to hf.ServerID) (mend func()) {
	n.t.Helper()
	return n.strike(to, "INPUT", "-s", n.Host(from), "-j", "DROP")
}

// CutClients drops what passes between the clients and a server, both ways.
func (n *Net) CutClients(id hf.ServerID) (mend func()) {
	n.t.Helper()
	in := n.strike(id, "INPUT", "-s", n.host(clientHost), "-j", "DROP")
	out := n.strike(id, "OUTPUT", "-d", n.host(clientHost), "-j", "DROP")
	return func() { in(); out() }
}

// Isolate cuts a server off from clients and other servers, all ways. The volume stays.
func (n *Net) Isolate(id hf.ServerID) (mend func()) {
	n.t.Helper()
	return n.strikeAll(id, "-j", "DROP")
}

// Lose drops a share, from 0 to 1, of all packets that a server receives and of those that it
// sends, at random.
func (n *Net) Lose(id hf.ServerID, share float64) (mend func()) {
	n.t.Helper()
	return n.strikeAll(id, random(share)...)
}

// random is a rule that drops a share of the packets.
func random(share float64) []string {
	return []string{"-m", "statistic", "--mode", "random", "--probability", fmt.Sprintf("%.4f", share), "-j", "DROP"}
}

// strikeAll has a rule for all that a server gets and sends, but for the observer's.
func (n *Net) strikeAll(id hf.ServerID, rule ...string) (mend func()) {
	n.t.Helper()
	in := n.strike(id, slices.Concat([]string{"INPUT", "-i", n.plug(id), "!", "-s", n.host(observerHost)}, rule)...)
	out := n.strike(id, slices.Concat([]string{"OUTPUT", "-o", n.plug(id), "!", "-d", n.host(observerHost)}, rule)...)
	return func() { in(); out() }
}

// MendAll ends every fault.
func (n *Net) MendAll() {
	n.t.Helper()
	for i := range netServers {
		if err := n.rule(hf.ServerID(i+1), "-F"); err != nil {
			n.t.Error(err)
		}
	}
}
