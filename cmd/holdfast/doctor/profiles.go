// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// profile is a row of the table of filesystems: what is known of one kind.
type profile struct {
	types []string // as mountinfo names them
	// single is true if one kernel owns the filesystem, so that all servers must run on one host.
	single  bool
	verdict Verdict
	note    string
	// rules judge mount options.
	rules []rule
	// coherent is true if no old data is shown after the commands of fix, so that anything seen late
	// is refused.
	coherent bool
	// staleness is the smallest S that a server assumes, also if a trial measured less.
	staleness time.Duration
	// look judges what the rules cannot express; mend are the commands of fix for the mount. May be nil.
	look func(r *Report, m mount, mend []string)
	// fix are the commands that correct the options; SOURCE, DIR and TYPE stand for those of the
	// mount, VOLUME for the name of a Gluster volume.
	fix []string
}

// rule judges one mount option.
type rule struct {
	option string
	values []string // nil = any
	absent bool     // the rule applies if the option is not there
	v      Verdict
	why    string
	fix    []string // nil = the profile's
}

func (p *profile) match(fstype string) bool { return slices.Contains(p.types, fstype) }

const (
	// nfsOptions are the options that every kernel supports. noalignwrite is not among them: files that
	// several hosts write are opened with O_DSYNC, and then the client writes only the given bytes;
	// and older kernels, such as 6.1, refuse to mount with it.
	nfsOptions   = "hard,vers=4.2,lookupcache=none"
	glusterMount = "umount DIR && mount -t glusterfs -o attribute-timeout=0,entry-timeout=0,negative-timeout=0,direct-io-mode=enable SOURCE DIR"
	fuseOptions  = "attr_timeout=0,entry_timeout=0,negative_timeout=0,direct_io"
	fuseMount    = "umount DIR && mount -t TYPE -o " + fuseOptions + " SOURCE DIR"
)

// nfsTypes returns the names of NFS in mountinfo.
func nfsTypes() []string { return []string{"nfs4", "nfs"} }

// nfsMount returns the command that mounts NFS with the options that Holdfast needs, and these.
func nfsMount(more ...string) string {
	return "umount DIR && mount -t nfs4 -o " + strings.Join(append([]string{nfsOptions}, more...), ",") + "KEPT SOURCE DIR"
}

// profileOf returns the row of the table for a filesystem type.
func profileOf(fstype string) profile {
	for _, p := range slices.Concat(localProfiles(), networkProfiles(), refusedProfiles()) {
		if p.match(fstype) {
			return p
		}
	}
	if fstype == "fuse" { // which program serves it is not known, so there is no command to paste
		return profile{verdict: Warn, note: "an unknown FUSE filesystem: it was not tested what it caches; mount it anew with -o " + fuseOptions}
	}
	if strings.HasPrefix(fstype, "fuse") {
		return profile{verdict: Warn, fix: []string{fuseMount}, note: "an unknown FUSE filesystem: it was not tested what it caches"}
	}
	return profile{verdict: Warn, note: "an unknown filesystem: it is treated as a network filesystem"}
}

func localProfiles() []profile {
	barrier := []rule{
		{option: "nobarrier", v: Warn, why: "a power cut can lose what was synced, unless the disk's cache has a battery"},
		{option: "barrier", values: []string{"0"}, v: Warn, why: "a power cut can lose what was synced, unless the disk's cache has a battery"},
	}
	remount := []string{"mount -o remount,barrier DIR"}
	return []profile{
		{types: []string{"ext4", "ext3", "ext2", "xfs", "btrfs"}, single: true, verdict: OK, note: "one kernel's own filesystem", rules: barrier, fix: remount},
		{types: []string{"zfs"}, single: true, verdict: OK, note: "one kernel's own filesystem; Holdfast treats it as a network filesystem, which is slower and safe"},
		{types: []string{"tmpfs", "ramfs"}, single: true, verdict: Warn, note: "memory: everything is gone when the host stops"},
		{types: []string{"overlay"}, single: true, verdict: Warn, note: "an overlay belongs to one container and often goes with it: mount a real volume there"},
	}
}

func networkProfiles() []profile {
	return []profile{
		{
			types: nfsTypes(), verdict: OK, fix: []string{nfsMount()}, look: (*Report).nfs,
			note: "NFS works with direct and synchronous I/O, which Holdfast uses. The export must be sync, which cannot be seen from here",
			rules: []rule{
				{option: "soft", v: Refuse, why: "soft mounts report failures of calls that execute later"},
				{option: "softerr", v: Refuse, why: "soft mounts report failures of calls that execute later"},
				{option: "softreval", v: Refuse, why: "cached names are used although the server does not answer"},
				{option: "nocto", v: Refuse, why: "opening a file does not ask the server"},
				{option: "fsc", v: Refuse, why: "reads come from a local disk"},
				{option: "nolock", v: Refuse, why: "locks do not exclude other hosts"},
				{option: "local_lock", values: []string{"all", "flock", "posix"}, v: Refuse, why: "locks do not exclude other hosts"},
				// Kernels since 6.15 show it, and only they know it: the command names it only there.
				{
					option: "fatal_neterrors", values: []string{"ENETDOWN:ENETUNREACH"}, v: Warn, fix: []string{nfsMount("fatal_neterrors=none")},
					why: "while its network is away, calls fail that may have been done; that is the default of a mount made in a container",
				},
			},
		},
		{
			types: []string{"ceph", "fuse.ceph", "fuse.ceph-fuse"}, verdict: OK,
			note:  "CephFS keeps clients' caches coherent; after the death of a host a takeover may wait until Ceph evicts it (up to 300 s)",
			rules: []rule{{option: "recover_session", values: []string{"clean"}, v: Refuse, why: "after an eviction dirty data is dropped and locks are stale"}},
			fix:   []string{"umount DIR && mount -t ceph -o recover_session=no SOURCE DIR"},
		},
		{
			// A client that is cut off from the brick which it reads from reads what was
			// there before, until it looks a path up: servers do once a second.
			types: []string{"fuse.glusterfs"}, verdict: OK, coherent: true, staleness: 2500 * time.Millisecond,
			note: "GlusterFS shows nothing old with the right options; servers wait 5 s when they take over, for a host may lose one brick of its own",
			fix: []string{
				"for o in quick-read io-cache read-ahead stat-prefetch open-behind write-behind flush-behind nl-cache; do gluster volume set VOLUME performance.$o off; done",
				"gluster volume set VOLUME cluster.choose-local off", "gluster volume set VOLUME client.strict-locks on",
				"gluster volume set VOLUME cluster.quorum-type auto", "gluster volume set VOLUME network.ping-timeout 10", glusterMount,
			},
			look: (*Report).gluster,
		},
		{
			types: []string{"lustre"}, verdict: OK, note: "Lustre keeps clients' caches coherent", fix: []string{"umount DIR && mount -t lustre -o flock SOURCE DIR"},
			rules: []rule{
				{option: "localflock", v: Refuse, why: "locks do not exclude other hosts"},
				{option: "noflock", v: Refuse, why: "there are no locks"},
				{option: "flock", absent: true, v: Refuse, why: "without it there are no locks"},
			},
		},
		{
			types: []string{"gfs2", "ocfs2"}, verdict: OK, note: "a cluster filesystem: when a node dies, all I/O stops until it is fenced",
			rules: []rule{{option: "localflocks", v: Refuse, why: "locks do not exclude other hosts"}},
			fix:   []string{"umount DIR && mount SOURCE DIR   # without localflocks"},
		},
		{types: []string{"gpfs", "beegfs"}, verdict: Warn, note: "a parallel filesystem that was not tested with Holdfast"},
	}
}

func refusedProfiles() []profile {
	elsewhere := []string{"holdfast init --volume DIR-ON-NFS4-CEPH-LUSTRE-OR-A-LOCAL-DISK …"}
	return []profile{
		{types: []string{"cifs", "smb3", "smbfs"}, verdict: Refuse, fix: elsewhere, note: "SMB: an open file cannot be replaced, and open files are lost on a reconnect"},
		{types: []string{"9p", "virtiofs"}, verdict: Refuse, fix: elsewhere, note: "locks stay inside the guest, so two guests do not exclude each other"},
		{types: []string{"fuse.sshfs", "fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.rclone", "fuse.blobfuse2", "fuse.mount-s3", "fuse.juicefs-s3"},
			verdict: Refuse, fix: elsewhere, note: "neither locks nor the order of writes are kept between hosts"},
		{types: []string{"afs", "fuse.grpcfuse", "fuse.osxfs"}, verdict: Refuse, fix: elsewhere, note: "writes are seen elsewhere when the file is closed, if then"},
		{types: []string{"proc", "sysfs", "devtmpfs", "squashfs", "iso9660", "vfat", "exfat"}, verdict: Refuse, fix: elsewhere, note: "not a filesystem for this"},
	}
}

// judge applies the rules of the table to a mount, option by option.
func (r *Report) judge(m mount, hosts int) {
	p := profileOf(m.fstype)
	fill := func(commands []string) []string {
		out := make([]string, len(commands))
		for i, c := range commands {
			out[i] = strings.NewReplacer("SOURCE", m.source, "DIR", m.point, "VOLUME", m.volume(), "TYPE", m.fstype, "vers=4.2", "vers="+m.askedVersion(), "KEPT", m.kept()).Replace(c)
		}
		return out
	}
	r.mend, r.coherent, r.MinStaleness = fill(p.fix), p.coherent, p.staleness
	detail := m.fstype + ": " + p.note
	var fix []string
	if p.verdict != OK {
		fix = fill(p.fix)
	}
	r.add("filesystem", p.verdict, detail, fix...)
	if p.single {
		r.oneHost(m, hosts)
	}
	before := len(r.Findings)
	if p.look != nil {
		p.look(r, m, r.mend)
	}
	if _, ro := m.has("ro"); ro {
		r.add(optionsCheck, Refuse, "mounted read-only", "mount -o remount,rw "+m.point)
	}
	if strings.Contains(m.source, ".efs.") {
		r.add("filesystem", Warn, "AWS EFS: appends by others are seen late; reported split brains; set --staleness and --fencing-period")
	}
	for _, x := range p.rules {
		value, there := m.has(x.option)
		if there == x.absent || there && x.values != nil && !slices.Contains(x.values, value) {
			continue
		}
		fix := x.fix
		if fix == nil {
			fix = p.fix
		}
		r.add(optionsCheck, x.v, x.name(value)+": "+x.why, fill(fix)...)
	}
	judged := slices.ContainsFunc(r.Findings[before:], func(f Finding) bool { return f.Check == optionsCheck })
	if len(p.rules) > 0 && !judged {
		r.add(optionsCheck, OK, strings.Join(m.options, ","))
	}
}

func (x rule) name(value string) string {
	switch {
	case x.absent:
		return "no " + x.option
	case value != "":
		return x.option + "=" + value
	default:
		return x.option
	}
}

// oneHost judges a filesystem that only one kernel can write to.
func (r *Report) oneHost(m mount, hosts int) {
	switch {
	case hosts > 1:
		r.add("hosts", Refuse, fmt.Sprintf("%s belongs to one host, but servers are to run on %d: each would see a directory of its own", m.fstype, hosts),
			"mount -t nfs4 -o "+nfsOptions+" SERVER:/EXPORT "+r.Path)
	case hosts == 0:
		r.add("hosts", Info, m.fstype+" belongs to one host: all servers must run there. If a share should be mounted here, it is not")
	default:
		r.add("hosts", OK, "one host")
	}
}
