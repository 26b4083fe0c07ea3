// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// commandLimit bounds one command on a host. The gluster tool itself waits up to
// two minutes for glusterd.
const commandLimit = 130 * time.Second

// host is a process that keeps namespaces, and with them a network, alive. It
// ends when the test does, whichever way.
type host struct {
	name  string
	cmd   *exec.Cmd
	alive io.Closer     // the host's standard input: its end is the end of a client host
	enter []string      // the namespaces that a command enters to run there
	done  chan struct{} // closed when the process has ended
}

// storageScript makes the namespaces of the storage host a home for glusterd:
// nothing that it writes is seen elsewhere, and what it starts ends with the
// shell, which is the init process there. It also collects the bricks that were
// killed: glusterd takes a process that was not reaped to be still running.
const storageScript = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mkdir -p /var/lib/glusterd /var/log/glusterfs
mount --bind "$1/lib" /var/lib/glusterd
mount --bind "$1/log" /var/log/glusterfs
mount --bind "$1/run" /run
mkdir -p /run/gluster
ip link set lo up
ip addr add ` + storageAddress + `/32 dev lo
glusterd --no-daemon --log-file="$1/log/glusterd.log" &
wait $!
`

// clientScript does nothing until its standard input ends.
const clientScript = `ip link set lo up && exec cat`

// startStorage begins a host with glusterd on it, whose files are in dir.
func startStorage(dir string) (*host, error) {
	cmd := exec.Command("sh", "-c", storageScript, "storage", dir)
	return start("storage", cmd, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS|syscall.CLONE_NEWPID, "--net", "--mount", "--pid")
}

// startClient begins a host that has nothing but a network.
func startClient(number int) (*host, error) {
	return start(fmt.Sprintf("client-%d", number), exec.Command("sh", "-c", clientScript), syscall.CLONE_NEWNET, "--net")
}

func start(name string, cmd *exec.Cmd, namespaces uintptr, enter ...string) (*host, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: namespaces}
	cmd.Stderr = os.Stderr
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the host %s: %w", name, err)
	}
	h := &host{name: name, cmd: cmd, alive: alive, done: make(chan struct{})}
	h.enter = enter
	go func() {
		defer close(h.done)
		_ = cmd.Wait() // it is killed in the end
	}()
	return h, nil
}

// run runs a command on the host to its end and returns what it printed.
func (h *host) run(name string, args ...string) (string, error) {
	return h.runIn(h.enter, name, args...)
}

// network runs a command that sees the host's network, and all else as the test does.
func (h *host) network(name string, args ...string) error {
	_, err := h.runIn([]string{"--net"}, name, args...)
	return err
}

func (h *host) runIn(namespaces []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	target := []string{"--target", strconv.Itoa(h.cmd.Process.Pid)}
	cmd := exec.CommandContext(ctx, "nsenter", slices.Concat(target, namespaces, []string{name}, args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second // a daemon may keep its parent's output open
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return string(out), fmt.Errorf("%s: %s %s: %w: %s", h.name, name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// end kills the process and, where it is the init of a namespace, all in it.
func (h *host) end() error {
	_ = h.cmd.Process.Kill() // it may have ended this moment
	_ = h.alive.Close()
	select {
	case <-h.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the host %s, process %d, does not end", h.name, h.cmd.Process.Pid)
	}
}
