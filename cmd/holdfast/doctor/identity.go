// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nfsClient is the identity of a host for the NFS server of a mount, as far as it is known. A Linux
// client's identity consists of the version of the protocol, the hostname and, if it is configured,
// a unique string.
type nfsClient struct {
	// Boot differs between machines; "" = not known.
	Boot     string `json:"boot"`
	Hostname string `json:"hostname"`
	// Unique is the unique string, "" for none; nil = not known.
	Unique *string `json:"unique"`
	// Container is true if the hostname is a container's. The mount may have been made under another one.
	Container bool   `json:"container"`
	Version   string `json:"version"` // of the protocol, as "4.2"
	Server    string `json:"server"`  // its address
}

// initialUTS is the namespace of the host's own hostname: its number is the same in every kernel.
const initialUTS = "uts:[4026531838]"

// nfsClientOf returns the identity of this host for the server of a mount; nil = the mount is not NFSv4.
func nfsClientOf(opt Options, m mount) *nfsClient {
	v := m.nfsVersion()
	if !m.isNFS() || !strings.HasPrefix(v, "4.") {
		return nil
	}
	server, _ := m.has("addr")
	host, _, _ := strings.Cut(m.source, ":/")
	namespace, err := os.Readlink(opt.file("proc/self/ns/uts"))
	c := &nfsClient{Version: v, Server: cmp.Or(server, host), Container: err != nil || namespace != initialUTS}
	c.Boot, _ = opt.read("proc/sys/kernel/random/boot_id")
	c.Hostname, _ = opt.read("proc/sys/kernel/hostname")
	// The identifier of a network namespace comes first. If none was set, newer kernels print "(null)".
	if id, _ := opt.read("sys/fs/nfs/net/nfs_client/identifier"); id != "" && id != "(null)" {
		c.Unique = &id
	} else if id, err := opt.read("sys/module/nfs/parameters/nfs4_unique_id"); err == nil {
		c.Unique = &id
	}
	return c
}

// file returns the path of a file of the kernel.
func (o Options) file(name string) string { return filepath.Join(cmp.Or(o.System, "/"), name) }

// read returns the content of a one-line file of the kernel.
func (o Options) read(name string) (string, error) {
	b, err := os.ReadFile(o.file(name))
	return strings.TrimSpace(string(b)), err
}

// collide reports whether two hosts are one client for their NFS server. The answer is certain if
// doubts is empty.
func (c *nfsClient) collide(d *nfsClient) (same bool, doubts []string) {
	switch {
	case c == nil || d == nil || c.Boot == "" || d.Boot == "" || c.Boot == d.Boot:
		return false, nil // one machine is one client, with any container names
	case c.Hostname != d.Hostname || c.Version != d.Version:
		return false, nil
	case c.Unique != nil && d.Unique != nil && *c.Unique != *d.Unique:
		return false, nil
	}
	for _, x := range []struct {
		doubt bool
		text  string
	}{
		{c.Container || d.Container, "that is the hostname of a container, and the mount may have been made under another one"},
		{c.Unique == nil || d.Unique == nil, "/sys/module/nfs/parameters/nfs4_unique_id, which may differ, cannot be read: run doctor as root on both"},
		{c.Server != d.Server, fmt.Sprintf("the servers' addresses differ, %q and %q, which may be two servers", c.Server, d.Server)},
		{c.Version == "4.0", "with vers=4.0 older kernels name their address, too"},
	} {
		if x.doubt {
			doubts = append(doubts, x.text)
		}
	}
	return true, doubts
}

// identityCheck is the name of the check.
const identityCheck = "NFS client identity"

// oneClient adds a finding when the hosts of two doctors are one client for their NFS server, and reports
// whether that is certain: then nothing else can be right.
func (r *Report) oneClient(own, other *nfsClient) (certain bool) {
	same, doubts := own.collide(other)
	if !same {
		return false
	}
	const how = "takes them for one that restarts again and again, and drops the locks of each when the other one calls"
	named := fmt.Sprintf("both hosts have the hostname %q", own.Hostname)
	switch {
	case own.Unique == nil || other.Unique == nil:
	case *own.Unique == "":
		named += " and no nfs4_unique_id"
	default:
		named += fmt.Sprintf(" and the nfs4_unique_id %q", *own.Unique)
	}
	fix := append([]string{
		`id=$(cat /proc/sys/kernel/random/uuid) && echo "options nfs nfs4_unique_id=$id" > /etc/modprobe.d/nfs-client-id.conf && printf %s "$id" > /sys/module/nfs/parameters/nfs4_unique_id   # on each host, or give them different hostnames; then, with everything from this NFS server unmounted:`,
	}, r.mend...)
	if len(doubts) == 0 {
		r.add(identityCheck, Refuse, fmt.Sprintf("%s: the NFS server %s %s. Nothing else was tested", named, own.Server, how), fix...)
		return true
	}
	r.add(identityCheck, Warn, fmt.Sprintf("%s: an NFS server possibly %s. That is not certain: %s", named, how, strings.Join(doubts, "; ")), fix...)
	return false
}
