// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Tuning is how a volume is set up and mounted.
type Tuning int

const (
	// Ours is with the options that Holdfast asks for.
	Ours Tuning = iota
	// Defaults is as GlusterFS comes.
	Defaults
)

// Setting is one option of a volume, as in gluster volume set.
type Setting struct{ Name, Value string }

// Settings are what Holdfast asks for: no client may answer from what it
// remembers, all read from the same brick, a lock does not outlive the connection
// of its holder unnoticed, a minority of bricks takes no writes, and a brick that
// does not answer is given up before anybody gives up the cluster.
func Settings() []Setting {
	var all []Setting
	for _, cache := range []string{"quick-read", "io-cache", "read-ahead", "stat-prefetch", "open-behind", "write-behind", "flush-behind", "nl-cache"} {
		all = append(all, Setting{"performance." + cache, "off"})
	}
	return append(all,
		Setting{"cluster.choose-local", "off"}, Setting{"client.strict-locks", "on"},
		Setting{"cluster.quorum-type", "auto"}, Setting{"network.ping-timeout", "10"})
}

// MountOptions are what Holdfast asks for when a volume is mounted: the kernel
// neither remembers names and attributes nor keeps data.
func MountOptions() []string {
	return []string{"attribute-timeout=0", "entry-timeout=0", "negative-timeout=0", "direct-io-mode=enable"}
}

// Available says what is missing to make volumes here; nil where they can be made.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("GlusterFS in namespaces needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("mounting GlusterFS needs FUSE: %w", err)
	}
	var missing []string
	for _, name := range []string{"glusterd", "gluster", "glusterfs", "glusterfsd", "mount.glusterfs", "nsenter", "ip", "iptables"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s (Debian has them in glusterfs-server, glusterfs-client, util-linux, iproute2 and iptables)", strings.Join(missing, ", "))
	}
	return nil
}
