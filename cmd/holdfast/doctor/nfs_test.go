// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"
)

// nfsLine is a mount as mountinfo of Linux 6.1 shows it, with these options of its superblock behind the version.
func nfsLine(version, options string) string {
	return "51 22 0:44 / /mnt/share rw,relatime shared:31 - nfs4 10.0.0.1:/srv rw," + version + "rsize=131072,wsize=131072,namlen=255," + options +
		"proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.2,local_lock=none,addr=10.0.0.1"
}

// judgeMount judges one line of mountinfo.
func judgeMount(t *testing.T, line string) *Report {
	t.Helper()
	mounts, err := parseMounts(strings.NewReader(line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Verdict: OK, Path: mounts[0].point}
	r.judge(mounts[0], 3)
	return r
}

// TestNFSOptions judges mounts as Linux shows them. Whatever the trial of two hosts refused is refused.
func TestNFSOptions(t *testing.T) {
	const mount = "umount /mnt/share && mount -t nfs4 -o hard,vers=4.2,lookupcache=none 10.0.0.1:/srv /mnt/share"
	const noac = "acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,hard,"
	for _, x := range []struct {
		name, line string
		want       Verdict
		says, fix  string
	}{
		{"as asked", nfsLine("vers=4.2,", "hard,lookupcache=none,"), OK, "vers=4.2", ""},
		{"as asked, Linux 6.15", nfsLine("vers=4.2,", "hard,fatal_neterrors=none,lookupcache=none,"), OK, "vers=4.2", ""},
		{"as asked, 4.1", nfsLine("vers=4.1,", "hard,lookupcache=none,"), OK, "vers=4.1", ""},
		{"as asked, several mounts and connections", nfsLine("vers=4.2,", "hard,nosharecache,nconnect=4,lookupcache=none,"), OK, "vers=4.2", ""},
		{"the default options", nfsLine("vers=4.2,", "hard,"), Refuse, "no lookupcache: a new name may seem missing", mount},
		{"missing names looked up", nfsLine("vers=4.2,", "hard,lookupcache=pos,"), Refuse, "lookupcache=pos: a replaced or removed name", mount},
		{"no attributes", nfsLine("vers=4.2,", noac+"noac,"), Warn, "no lookupcache without cached attributes", mount},
		{"attributes for no time", nfsLine("vers=4.2,", noac), Warn, "no lookupcache without cached attributes", mount},
		{"attributes of directories for a second", nfsLine("vers=4.2,", "acregmin=1,acregmax=1,acdirmin=1,acdirmax=1,hard,"), Refuse, "no lookupcache: ", mount},
		{"no attributes, and as asked", nfsLine("vers=4.2,", noac+"noac,lookupcache=none,"), OK, "noac", ""},
		{"4.0", nfsLine("vers=4.0,", "hard,lookupcache=none,"), Warn, "vers=4.0", mount},
		{"old kernel, 4.0", nfsLine("vers=4,", "hard,minorversion=0,lookupcache=none,"), Warn, "vers=4.0", mount},
		{"older kernel, 4.0", nfsLine("vers=4,", "hard,lookupcache=none,"), Warn, "vers=4.0", mount},
		{"old kernel, 4.1", nfsLine("vers=4,", "hard,minorversion=1,lookupcache=none,"), OK, "minorversion=1", ""},
		{"4.1, with what the site needs", nfsLine("vers=4.1,", "noresvport,hard,nconnect=4,port=2050,sec=krb5p,"), Refuse, "no lookupcache",
			"umount /mnt/share && mount -t nfs4 -o hard,vers=4.1,lookupcache=none,noresvport,nconnect=4,port=2050,sec=krb5p 10.0.0.1:/srv /mnt/share"},
		{"RDMA", strings.Replace(nfsLine("vers=4.2,", "hard,"), "proto=tcp", "proto=rdma,port=20049", 1), Refuse, "no lookupcache",
			"umount /mnt/share && mount -t nfs4 -o hard,vers=4.2,lookupcache=none,proto=rdma,port=20049 10.0.0.1:/srv /mnt/share"},
		{"version 3", nfsLine("vers=3,", "hard,lookupcache=none,"), Refuse, "vers=3: the locks of a dead host", mount},
		{"version 2", nfsLine("vers=2,", "hard,lookupcache=none,"), Refuse, "vers=2: the locks of a dead host", mount},
		{"no version", nfsLine("", "hard,lookupcache=none,"), Warn, "no vers", mount},
		{"softerr", nfsLine("vers=4.2,", "softerr,softreval,lookupcache=none,"), Refuse, "softreval: ", mount},
		{"the default in a container", nfsLine("vers=4.2,", "hard,fatal_neterrors=ENETDOWN:ENETUNREACH,lookupcache=none,"), Warn, "fatal_neterrors=ENETDOWN:ENETUNREACH", strings.Replace(mount, "none ", "none,fatal_neterrors=none ", 1)},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := judgeMount(t, x.line)
			says := func(f Finding) bool {
				return f.Check == optionsCheck && f.Verdict == x.want && strings.Contains(f.Detail, x.says) && strings.Join(f.Fix, "") == x.fix
			}
			if r.Verdict != x.want || !slices.ContainsFunc(r.Findings, says) {
				t.Errorf("got %s: %+v\nwant %s, saying %q, mended by %q", r.Verdict, r.Findings, x.want, x.says, x.fix)
			}
		})
	}
}
