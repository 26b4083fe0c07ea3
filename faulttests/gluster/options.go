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
	// Ours uses the options that Holdfast requires.
	Ours Tuning = iota
	// Defaults is as GlusterFS comes.
	Defaults
)

// Setting is one option of a volume, as in gluster volume set.
type Setting struct{ Name, Value string }

// Settings returns the options that Holdfast requires: clients do not answer from caches,
// all read from the same brick, a lock does not end unnoticed with the connection
// of its holder, a minority of bricks takes no writes, and a silent brick is given up
// before clients give up the cluster.
func Settings() []Setting {
	var all []Setting
	for _, cache := range []string{"quick-read", "io-cache", "read-ahead", "stat-prefetch", "open-behind", "write-behind", "flush-behind", "nl-cache"} {
		all = append(all, Setting{"performance." + cache, "off"})
	}
	return append(all,
		Setting{"cluster.choose-local", "off"}, Setting{"client.strict-locks", "on"},
		Setting{"cluster.quorum-type", "auto"}, Setting{"network.ping-timeout", "10"})
}

// MountOptions returns the mount options that Holdfast requires: the kernel
// caches neither names and attributes nor data.
func MountOptions() []string {
	return []string{"attribute-timeout=0", "entry-timeout=0", "negative-timeout=0", "direct-io-mode=enable"}
}

// Available returns what is missing to make volumes here; nil if they can be made.
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
