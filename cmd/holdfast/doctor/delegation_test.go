// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nfsStats is what mountstats of Linux 6.1 shows of a mount of NFSv4 after so many returned delegations.
func nfsStats(point string, returned int) string {
	return `device 10.0.0.1:/srv mounted on ` + point + ` with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2,rsize=131072,wsize=131072,namlen=255,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.2,lookupcache=none,local_lock=none
	age:	9503
	impl_id:	name='',domain='',date='0,0'
	caps:	caps=0x3ffbffff,wtmult=512,dtsize=32768,bsize=0,namlen=255
	nfsv4:	bm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x68800,acl=0x3,sessions,pnfs=not configured,lease_time=90,lease_expired=0
	sec:	flavor=1,pseudoflavor=1
	events:	35 259 2 1005 9 7 511 256000 0 66 0 26 18 2 6 4 0 3 0 0 256000 0 0 0 0 0 0 
	bytes:	1048576000 1048576000 0 1048576000 1048576000 2097152000 256000 256000 
	RPC iostats version: 1.1  p/v: 100003/4 (nfs)
	xprt:	tcp 0 0 2 0 38 27 27 0 27 0 2 0 0
	per-op statistics
	        NULL: 1 1 0 44 24 0 0 0 0
	        OPEN: 2 2 0 632 704 0 140 141 0
	       CLOSE: 3 3 0 684 528 0 56 56 0
	` + fmt.Sprintf(" DELEGRETURN: %d %d 0 0 0 0 0 0 0", returned, returned) + `
	  GETDEVICEINFO: 0 0 0 0 0 0 0 0 0

`
}

// otherStats are mounts that are no NFS.
const otherStats = "device proc mounted on /proc with fstype proc\nno device mounted on /mnt/none with fstype tmpfs\n"

func TestOperations(t *testing.T) {
	const point = "/mnt/with blank"
	escaped := strings.ReplaceAll(point, " ", `\040`)
	for _, x := range []struct {
		name, text string
		want       uint64
		ok         bool
	}{
		{"one mount", otherStats + nfsStats(escaped, 7), 7, true},
		{"none yet", nfsStats(escaped, 0), 0, true},
		{"other mounts", nfsStats("/a", 1) + nfsStats(escaped, 7) + nfsStats("/mnt/with", 3) + otherStats, 7, true},
		{"one over another", nfsStats(escaped, 1) + nfsStats(escaped, 7), 7, true},
		{"covered by another filesystem", nfsStats(escaped, 1) + "device tmpfs mounted on " + escaped + " with fstype tmpfs\n", 0, false},
		{"NFSv3", strings.ReplaceAll(nfsStats(escaped, 7), "DELEGRETURN", "MKNOD"), 0, false},
		{"no mount", otherStats, 0, false},
		{"nonsense", strings.Replace(nfsStats(escaped, 7), "DELEGRETURN: 7", "DELEGRETURN: many", 1), 0, false},
		{"cut short", strings.Split(nfsStats(escaped, 7), "DELEGRETURN: ")[0] + "DELEGRETURN:", 0, false},
		{"nothing", "", 0, false},
	} {
		if n, ok := operations(x.text, point, "DELEGRETURN"); n != x.want || ok != x.ok {
			t.Errorf("%s: got %d, %v, want %d, %v", x.name, n, ok, x.want, x.ok)
		}
	}
}

// TestDelegations: a delegation that had to be given back is told, with what it costs; nothing else is.
func TestDelegations(t *testing.T) {
	for _, x := range []struct {
		name          string
		before, after int
		broken        error
		nfs           bool
		want          []Verdict
	}{
		{"given", 5, 6, nil, true, []Verdict{Info}},
		{"given to another program, too", 0, 3, nil, true, []Verdict{Info}},
		{"not given", 5, 5, nil, true, nil},
		{"unreadable", 5, 6, errors.New("no such file"), true, nil},
		{"no NFS", 5, 6, nil, false, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			opt := Options{}
			if x.nfs {
				opt.Mounts = asNFS(t, dir, "hard,lookupcache=none,")
			}
			asked := 0
			opt.mountStats = func() (string, error) {
				asked++
				if left, err := filepath.Glob(filepath.Join(dir, ".holdfast-doctor-*", "read")); err != nil || len(left) > 0 {
					t.Errorf("the file is still there: %v, %v", left, err)
				}
				if asked == 1 {
					return nfsStats(dir, x.before), x.broken
				}
				return nfsStats(dir, x.after), x.broken
			}
			all, err := Examine(t.Context(), []string{dir}, opt)
			if err != nil {
				t.Fatal(err)
			}
			if v := verdicts(all[0], "delegations"); !slices.Equal(v, x.want) {
				t.Errorf("got %v, want %v: %+v", v, x.want, all[0].Findings)
			}
			if all[0].Verdict == Refuse && x.nfs && !slices.Contains(verdicts(all[0], "direct I/O"), Refuse) {
				t.Errorf("refused: %+v", all[0].Findings)
			}
		})
	}
}
