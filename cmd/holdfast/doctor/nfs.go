// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

// optionsCheck is the name of the checks of a mount's options.
const optionsCheck = "mount options"

// nfs judges what the table of options cannot express: the version, which kernels show in two
// ways, and how long names are cached, which depends on several options together.
func (r *Report) nfs(m mount, mend []string) {
	r.nfsVersion(m, mend)
	r.nfsNames(m, mend)
}

// nfsVersion judges the version of the protocol.
func (r *Report) nfsVersion(m mount, mend []string) {
	switch v := m.nfsVersion(); {
	case v == "":
		r.add(optionsCheck, Warn, "no vers: the version of NFS is not shown; it must be 4.1 or later", mend...)
	case v == "4.0":
		r.add(optionsCheck, Warn, "vers=4.0: a repeated rename may fail although it was done, and a takeover may wait for the lease of a dead host (90 s by default); 4.1 has sessions", mend...)
	case !strings.HasPrefix(v, "4."):
		r.add(optionsCheck, Refuse, fmt.Sprintf("vers=%s: the locks of a dead host are never freed; use NFS 4.1 or later", v), mend...)
	}
}

// nfsVersion returns the version of the protocol of an NFS mount: "3", "4.2"; "" if the kernel shows
// none.
func (m mount) nfsVersion() string {
	v, _ := m.has("vers")
	if v != "4" {
		return v
	}
	// Old kernels show the minor version in an option of its own.
	minor, ok := m.has("minorversion")
	if !ok {
		minor = "0"
	}
	return v + "." + minor
}

// askedVersion returns the version of NFS to mount with: 4.2, but 4.1 if the server is used with
// that, because it may support nothing newer.
func (m mount) askedVersion() string {
	if m.nfsVersion() == "4.1" {
		return "4.1"
	}
	return "4.2"
}

// kept returns the present options that a new mount command must repeat, with leading commas: the
// server's port, the security flavour, the number of connections. Without them a mount may be
// refused, or slower.
func (m mount) kept() (options string) {
	for _, o := range m.options {
		switch name, value, _ := strings.Cut(o, "="); name {
		case "proto": // its port is kept, and no TCP is there
			if strings.HasPrefix(value, "rdma") {
				options += "," + o
			}
		case "sec", "xprtsec", "port", "nconnect", "noresvport":
			if value != "sys" && value != "none" && value != "0" && value != "2049" {
				options += "," + o
			}
		}
	}
	return options
}

// nfsNames judges how long a client uses cached names. Before that it asks the server for the
// attributes of their directory, unless it has these cached, too; with
// lookupcache=none it asks for the name itself, each time.
func (r *Report) nfsNames(m mount, mend []string) {
	const set = "; set lookupcache=none, also in /etc/fstab"
	cache, given := m.has("lookupcache")
	option := "no lookupcache"
	if given {
		option = "lookupcache=" + cache
	}
	_, noac := m.has("noac")
	acdirmax, _ := m.has("acdirmax")
	switch {
	case cache == "none":
	case noac || acdirmax == "0":
		r.add(optionsCheck, Warn, option+" without cached attributes: a name is stale if the server counts two changes of its directory as one"+set, mend...)
	case strings.HasPrefix(cache, "pos"):
		r.add(optionsCheck, Refuse, option+": a replaced or removed name may lead to its old file for up to a minute"+set, mend...)
	default:
		r.add(optionsCheck, Refuse, option+": a new name may seem missing, and a replaced one lead to its old file, for up to a minute"+set, mend...)
	}
}
