// SPDX-License-Identifier: Apache-2.0

//go:build linux

package vmlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Lab is an NFS server and three machines that mount what it exports.
type Lab struct {
	NFS   *Machine
	Hosts []*Machine // of servers 1, 2 and 3
	// Options are those of the hosts' mounts.
	Options string
	// ServerArgs are given to every server.
	ServerArgs string

	t      testing.TB
	dir    string
	binary string
}

// Asked are the options that the doctor asks for.
const Asked = "vers=4.2,hard,lookupcache=none"

// SlowTiming suits servers on emulated machines that share two busy processors.
const SlowTiming = "--suspicion 1500ms --heartbeat 150ms --quorum-timeout 4s --majority-window 3s --storage-timeout 10s"

// Mounted is where hosts have the share, and volume the directory of Holdfast's volume on it.
const (
	Mounted = "/mnt/a"
	volume  = Mounted + "/volume"
)

// Where machines and the test are on the two bridges.
const (
	testHost  = 100
	nfsHost   = 1
	firstHost = 11
)

func tested(host int) string  { return fmt.Sprintf("198.19.1.%d", host) }
func control(host int) string { return fmt.Sprintf("198.19.2.%d", host) }

// Settings of a lab. The zero value is what a Debian server has out of the box.
type Settings struct {
	// Lease and Grace are those of the NFS server; 0 = 90 s.
	Lease, Grace time.Duration
}

// New makes the networks and the machines, all switched off. The process must be inside a network
// namespace of its own, see cluster.Inside. The binary needs no libraries.
func New(t testing.TB, image Image, binary string, s Settings) *Lab {
	t.Helper()
	l := &Lab{t: t, dir: t.TempDir(), binary: binary, Options: Asked, ServerArgs: SlowTiming}
	for name, address := range map[string]string{"vmnet": tested(testHost), "ctlnet": control(testHost)} {
		err := shell(l.dir, fmt.Sprintf("ip link add %[1]s type bridge forward_delay 0; ip address add %[2]s/24 dev %[1]s; ip link set %[1]s up", name, address))
		if err != nil {
			t.Skip("cannot make a bridge here: ", err)
		}
	}
	disks := []string{filepath.Join(l.dir, "export"), filepath.Join(l.dir, "state")}
	for i, size := range []string{"4G", "64M"} {
		if err := shell(l.dir, fmt.Sprintf("truncate -s %[2]s %[1]s; mkfs.ext4 -q -F %[1]s", disks[i], size)); err != nil {
			t.Fatal(err)
		}
	}
	args := ""
	if s.Lease > 0 {
		args += fmt.Sprintf(" vm.lease=%d", int(s.Lease.Seconds()))
	}
	if s.Grace > 0 {
		args += fmt.Sprintf(" vm.grace=%d", int(s.Grace.Seconds()))
	}
	l.NFS = l.machine(image, "S", "nfsd", nfsHost, 768, args, disks...)
	for i, name := range []string{"A", "B", "C"} {
		l.Hosts = append(l.Hosts, l.machine(image, name, "client", firstHost+i, 448, ""))
	}
	return l
}

// Machine adds one more machine that may mount the share.
func (l *Lab) Machine(image Image, name string) *Machine {
	l.t.Helper()
	return l.machine(image, name, "client", firstHost+3, 320, "")
}

func (l *Lab) machine(image Image, name, role string, host, memory int, args string, disks ...string) *Machine {
	l.t.Helper()
	m := &Machine{Name: name, IP: tested(host), role: role, control: control(host), memory: memory, disks: disks, args: args, image: image, dir: l.dir}
	for _, net := range []string{"vm", "ctl"} {
		if err := shell(l.dir, fmt.Sprintf("ip tuntap add %[1]s%[2]s mode tap; ip link set %[1]s%[2]s master %[1]snet up", net, name)); err != nil {
			l.t.Fatal(err)
		}
	}
	l.t.Cleanup(m.PowerOff)
	return m
}

// Boot switches all machines on, has the hosts mount the share, and makes a volume on it.
func (l *Lab) Boot(ctx context.Context) error {
	usual := l.NFS.args
	l.NFS.args += " vm.grace=10" // nobody has anything to reclaim yet
	defer func() { l.NFS.args = usual }()
	all := append([]*Machine{l.NFS}, l.Hosts...)
	for _, m := range all {
		if err := m.Boot(); err != nil {
			return err
		}
	}
	for _, m := range all {
		if err := m.Await(ctx); err != nil {
			return err
		}
	}
	for _, m := range l.Hosts {
		if err := l.Mount(ctx, m); err != nil {
			return err
		}
	}
	init := "holdfast init --volume " + volume
	for i, m := range l.Hosts {
		init += fmt.Sprintf(" --server %d=%s", i+1, m.IP)
	}
	_, err := l.Hosts[0].Run(ctx, init)
	return err
}

// Mount mounts the share in a machine.
func (l *Lab) Mount(ctx context.Context, m *Machine) error {
	source := l.NFS.IP + ":/"
	if strings.Contains(l.Options, "vers=3") {
		source += "export"
	}
	_, err := m.Run(ctx, fmt.Sprintf("mkdir -p %[1]s; mount.nfs %[2]s %[1]s -o %[3]s", Mounted, source, l.Options))
	return err
}

// Serve starts the server of a host. Its log is /run/server.log there.
func (l *Lab) Serve(ctx context.Context, id int) error {
	_, err := l.Hosts[id-1].Run(ctx, fmt.Sprintf(
		"cd /; setsid holdfast server --id %d --volume %s --data-dir none --log-format json %s >> /run/server.log 2>&1 & echo $! > /run/server.pid", id, volume, l.ServerArgs))
	return err
}

// Running reports whether the server of a host runs.
func (l *Lab) Running(ctx context.Context, id int) bool {
	_, err := l.Hosts[id-1].Run(ctx, "kill -0 $(cat /run/server.pid)")
	return err == nil
}

// Signal sends a signal to the server of a host: KILL, TERM, STOP, CONT.
func (l *Lab) Signal(ctx context.Context, id int, signal string) error {
	_, err := l.Hosts[id-1].Run(ctx, fmt.Sprintf("kill -%s $(cat /run/server.pid)", signal))
	return err
}

// Endpoints are the addresses of all servers, for clients.
func (l *Lab) Endpoints() (all []string) {
	for _, m := range l.Hosts {
		all = append(all, m.IP+":7601")
	}
	return all
}

// CLI runs the holdfast binary here, as a client of the servers.
func (l *Lab) CLI(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.binary, append([]string{"--endpoints", strings.Join(l.Endpoints(), ",")}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("holdfast %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Primary waits until a server reigns, and returns its ID and epoch.
func (l *Lab) Primary(ctx context.Context) (id int, epoch uint64, err error) {
	for {
		var s struct {
			Epoch   uint64 `json:"epoch"`
			Servers []struct {
				ID   int    `json:"id"`
				Role string `json:"role"`
			} `json:"servers"`
		}
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		// Its exit code tells how healthy the cluster is: who reigns is asked here.
		out, _ := exec.CommandContext(try, l.binary, "--endpoints", strings.Join(l.Endpoints(), ","), "status", "-o", "json", "--timeout", "3s").Output()
		cancel()
		if json.Unmarshal(out, &s) == nil {
			for _, x := range s.Servers {
				if x.Role == "primary" {
					return x.ID, s.Epoch, nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return 0, 0, errors.Join(errors.New("no server reigns"), ctx.Err())
		case <-time.After(300 * time.Millisecond):
		}
	}
}
