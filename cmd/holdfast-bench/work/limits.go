// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// serverReserve is how many file descriptors a server keeps from its clients at most, and a quarter
	// of what it has where that is less.
	serverReserve = 4096
	// portReserve is how many local ports are left to everything else on the machine.
	portReserve = 500
	// clientFiles is how many connections a client has at once while it looks for the primary, and
	// processFiles what a client process has besides.
	clientFiles  = 3
	processFiles = 100
	// processClients is how many clients share a process at most: more only make its timers late.
	processClients = 10_000
	// maxProcesses is how many processes clients are spread over at most.
	maxProcesses = 64
)

// limits are what bounds the connections of one machine with itself.
type limits struct {
	files int // descriptors of a process
	ports int // local ports, each of which makes one connection to a server
}

// readLimits raises the limit of descriptors, of this process and those that it starts, to what this many
// connections need, as far as that is allowed, and returns what there is then.
func readLimits(connections int) (limits, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return limits{}, fmt.Errorf("read the limit of open files: %w", err)
	}
	want := uint64(connections + serverReserve + processFiles)
	// Processes that are started inherit only a limit that was set here.
	for _, hard := range []uint64{max(want, now.Max), now.Max} {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: hard, Max: hard}); err == nil {
			now.Cur = hard
			break
		}
	}
	l := limits{files: int(min(now.Cur, 1<<30)), ports: 28_232} // the usual range of ports
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var first, last int
	if err == nil {
		if _, err := fmt.Sscan(strings.TrimSpace(string(b)), &first, &last); err == nil {
			l.ports = last - first + 1
		}
	}
	return l, nil
}

// possible returns how many clients can be connected to one server.
func (l limits) possible() int {
	return max(0, min(l.files-min(l.files/4, serverReserve)-processFiles, l.ports-portReserve))
}

// processes returns in how many processes so many clients run: as few as may be, or asked, unless that is 0. It returns an
// error, with what is possible and how to get more, if the machine does not allow so many clients, or these processes do not.
func (l limits) processes(flag string, clients, asked int) (int, error) {
	if most := l.possible(); clients > most {
		return 0, fmt.Errorf("--%s %d: this machine allows %d, with %d open files for a process and %d local ports: ask for fewer, "+
			"or raise the limits (as root: ulimit -n %d, and sysctl -w net.ipv4.ip_local_port_range='1024 65535', which is enough for 64,000)",
			flag, clients, most, l.files, l.ports, clients+clients/3+serverReserve)
	}
	each := max(1, min(processClients, (l.files-processFiles)/clientFiles))
	least := (clients + each - 1) / each
	switch {
	case asked == 0:
		return least, nil
	case asked < least || asked > clients:
		return 0, fmt.Errorf("--processes %d: use %d to %d for %d clients, or 0 for as few as may be: each has room for %d", asked, least, min(clients, maxProcesses), clients, each)
	}
	return asked, nil
}
