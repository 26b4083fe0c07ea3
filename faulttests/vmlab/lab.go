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

// Lab is a set of machines whose servers share a volume.
type Lab struct {
	// NFS is the machine that exports the share; nil if there is none.
	NFS *Machine
	// Hosts run servers 1, 2 and 3: three machines one each, or a single one all of them.
	Hosts []*Machine
	// ServerArgs are further arguments of every server.
	ServerArgs string

	share  Share
	t      testing.TB
	dir    string
	binary string
}

// Asked are the mount options that the doctor requires.
const Asked = "vers=4.2,hard,lookupcache=none"

// SlowTiming suits servers on emulated machines that share two busy processors.
const SlowTiming = "--suspicion 1500ms --heartbeat 150ms --quorum-timeout 4s --majority-window 3s --storage-timeout 10s"

// Mounted is where hosts have the share, and volume the directory of Holdfast's volume on it.
const (
	Mounted = "/mnt/a"
	volume  = Mounted + "/volume"
)

// The addresses of machines and the test on the two bridges.
const (
	testHost  = 100
	nfsHost   = 1
	firstHost = 11
)

// The memory of machines, in MiB.
const (
	nfsMemory  = 768
	hostMemory = 448
	soleMemory = 896 // of a host that runs all servers
)

func tested(host int) string  { return fmt.Sprintf("198.19.1.%d", host) }
func control(host int) string { return fmt.Sprintf("198.19.2.%d", host) }

// New makes the networks, the disks and the machines, all switched off. The process must be inside
// a network namespace of its own, see cluster.Inside. The binary must be statically linked.
func New(t testing.TB, image Image, binary string, share Share) *Lab {
	t.Helper()
	l := &Lab{t: t, dir: t.TempDir(), binary: binary, share: share, ServerArgs: SlowTiming}
	for name, address := range map[string]string{"vmnet": tested(testHost), "ctlnet": control(testHost)} {
		err := shell(l.dir, fmt.Sprintf("ip link add %[1]s type bridge forward_delay 0; ip address add %[2]s/24 dev %[1]s; ip link set %[1]s up", name, address))
		if err != nil {
			t.Skip("cannot make a bridge here: ", err)
		}
	}
	disk := l.disk("disk", "4G", share.mkfs) + share.options
	if share.exported {
		l.NFS = l.machine(image, "S", "nfsd", nfsHost, nfsMemory, disk, l.disk("state", "64M", "mkfs.ext4 -q -F %s"))
		disk = ""
	}
	memory := hostMemory
	if share.hosts == 1 {
		memory = soleMemory
	}
	for i, name := range []string{"A", "B", "C"}[:share.hosts] {
		l.Hosts = append(l.Hosts, l.machine(image, name, share.role, firstHost+i, memory, disk))
	}
	return l
}

// disk makes a file with a filesystem in it.
func (l *Lab) disk(name, size, mkfs string) string {
	l.t.Helper()
	file := filepath.Join(l.dir, name)
	if err := shell(l.dir, fmt.Sprintf("truncate -s %s %s; %s", size, file, fmt.Sprintf(mkfs, file))); err != nil {
		l.t.Fatal(err)
	}
	return file
}

func (l *Lab) machine(image Image, name, role string, host, memory int, disks ...string) *Machine {
	l.t.Helper()
	m := &Machine{Name: name, IP: tested(host), role: role, control: control(host), memory: memory, image: image, dir: l.dir}
	for _, disk := range disks {
		if disk != "" {
			m.disks = append(m.disks, disk)
		}
	}
	for _, net := range []string{"vm", "ctl"} {
		if err := shell(l.dir, fmt.Sprintf("ip tuntap add %[1]s%[2]s mode tap; ip link set %[1]s%[2]s master %[1]snet up", net, name)); err != nil {
			l.t.Fatal(err)
		}
	}
	l.t.Cleanup(m.PowerOff)
	return m
}

// all machines, the one that exports first.
func (l *Lab) all() []*Machine {
	if l.NFS == nil {
		return l.Hosts
	}
	return append([]*Machine{l.NFS}, l.Hosts...)
}

// Boot switches all machines on and has the hosts mount the share.
func (l *Lab) Boot(ctx context.Context) error {
	if l.NFS != nil {
		l.NFS.args = "vm.grace=10" // there is nothing to reclaim yet
		defer func() { l.NFS.args = "" }()
	}
	for _, m := range l.all() {
		if err := m.Boot(); err != nil {
			return err
		}
	}
	for _, m := range l.all() {
		if err := m.Await(ctx); err != nil {
			return err
		}
	}
	for _, m := range l.Hosts {
		if err := l.Mount(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// Init makes a volume on the share.
func (l *Lab) Init(ctx context.Context) error {
	init := "holdfast init --plain --volume " + volume
	for id := range 3 {
		init += fmt.Sprintf(" --server %d=%s", id+1, l.endpoint(id+1))
	}
	_, err := l.Hosts[0].Run(ctx, init)
	return err
}

// Begin boots the machines, makes a volume and starts its servers.
func (l *Lab) Begin(ctx context.Context) error {
	if err := l.Boot(ctx); err != nil {
		return err
	}
	if err := l.Init(ctx); err != nil {
		return err
	}
	for id := range 3 {
		if err := l.Serve(ctx, id+1); err != nil {
			return err
		}
	}
	return nil
}

// Mount mounts the share in a machine where it is not mounted.
func (l *Lab) Mount(ctx context.Context, m *Machine) error {
	_, err := m.Run(ctx, fmt.Sprintf("mkdir -p %[1]s; grep -q ' %[1]s ' /proc/mounts || { %[2]s; }", Mounted, l.share.mount))
	return err
}

// Remount mounts the share again in a machine whose processes may still use the previous mount.
func (l *Lab) Remount(ctx context.Context, m *Machine) error {
	_, err := m.Run(ctx, fmt.Sprintf("umount -l %s; %s", Mounted, l.share.mount))
	return err
}

// Host returns the machine of a server.
func (l *Lab) Host(id int) *Machine { return l.Hosts[(id-1)%len(l.Hosts)] }

// endpoint is the address at which a server serves clients.
func (l *Lab) endpoint(id int) string { return fmt.Sprintf("%s:%d", l.Host(id).IP, 7600+id) }

// Endpoints returns the addresses for clients of all servers.
func (l *Lab) Endpoints() []string { return []string{l.endpoint(1), l.endpoint(2), l.endpoint(3)} }

// Serve starts a server. Its log is /run/server.ID.log in its host.
func (l *Lab) Serve(ctx context.Context, id int) error {
	_, err := l.Host(id).Run(ctx, fmt.Sprintf(
		"cd /; setsid holdfast server --id %[1]d --volume %[2]s --data-dir none --log-format json %[3]s >> /run/server.%[1]d.log 2>&1 & echo $! > /run/server.%[1]d.pid", id, volume, l.ServerArgs))
	return err
}

// Running reports whether a server runs.
func (l *Lab) Running(ctx context.Context, id int) bool { return l.Signal(ctx, id, "0") == nil }

// Signal sends a signal to a server: KILL, TERM, STOP, CONT.
func (l *Lab) Signal(ctx context.Context, id int, signal string) error {
	_, err := l.Host(id).Run(ctx, fmt.Sprintf("kill -%s $(cat /run/server.%d.pid)", signal, id))
	return err
}

// Cut drops all packets between a machine and these addresses, without any error to the senders,
// until mend is called.
func (l *Lab) Cut(m *Machine, from ...string) (mend func() error, err error) {
	rules := func(how string) error {
		var all []string
		for _, chain := range []string{"FORWARD", "INPUT", "OUTPUT"} {
			for _, ip := range from {
				all = append(all, fmt.Sprintf("iptables -w %[1]s %[2]s -s %[3]s -d %[4]s -j DROP; iptables -w %[1]s %[2]s -s %[4]s -d %[3]s -j DROP", how, chain, m.IP, ip))
			}
		}
		return shell(l.dir, strings.Join(all, "; "))
	}
	return func() error { return rules("-D") }, rules("-I")
}

// Holdfast returns a command that runs the binary here, as a client of the servers.
func (l *Lab) Holdfast(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, l.binary, append([]string{"--endpoints", strings.Join(l.Endpoints(), ",")}, args...)...)
}

// Primary waits until a server is primary, and returns its ID and epoch.
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
		// Its exit code tells how healthy the cluster is: which server is primary is asked here.
		out, _ := l.Holdfast(try, "status", "-o", "json", "--timeout", "3s").Output()
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
			return 0, 0, errors.Join(errors.New("no server is primary"), ctx.Err())
		case <-time.After(300 * time.Millisecond):
		}
	}
}
