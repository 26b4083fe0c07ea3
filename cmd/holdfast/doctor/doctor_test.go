// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

func examineOne(t *testing.T, dir string) *Report {
	t.Helper()
	all, err := Examine(t.Context(), []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// verdicts are those of one check.
func verdicts(r *Report, check string) (all []Verdict) {
	for _, f := range r.Findings {
		if f.Check == check {
			all = append(all, f.Verdict)
		}
	}
	return all
}

func TestOrdinaryDirectory(t *testing.T) {
	dir := t.TempDir()
	r := examineOne(t, dir)
	if r.Verdict == Refuse {
		t.Errorf("a temporary directory is refused: %+v", r.Findings)
	}
	for _, check := range []string{"create", "directory fsync", "hard links", "rename", "flock", "fdatasync", "permissions"} {
		if v := verdicts(r, check); !slices.Equal(v, []Verdict{OK}) {
			t.Errorf("%s: got %v", check, v)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("doctor left %v (%v)", left, err)
	}
}

func TestVolumeIsSeen(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	members := cluster.Members{
		{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"},
	}
	c, err := volume.Init(t.Context(), f, members, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := examineOne(t, dir)
	if r.ClusterID != c.ID.String() {
		t.Errorf("cluster %q, want %s", r.ClusterID, c.ID)
	}
	// Two hosts, and a filesystem that belongs to one.
	if !r.Network && !slices.Contains(verdicts(r, "hosts"), Refuse) {
		t.Errorf("two hosts on %s: %+v", r.Filesystem, r.Findings)
	}
}

// A login/ that servers do not use is found, and a good one is named.
func TestLogins(t *testing.T) {
	dir := t.TempDir()
	f, err := osfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // descriptors of directories
	members := cluster.Members{{ID: 1, Client: "h:1", Peer: "h:2"}}
	if _, err := volume.Init(t.Context(), f, members, rand.Reader); err != nil {
		t.Fatal(err)
	}
	look := func(want ...Verdict) {
		t.Helper()
		r := &Report{}
		if r.cluster(dir, 1); !slices.Equal(verdicts(r, "logins"), want) {
			t.Errorf("%+v, want %v", r.Findings, want)
		}
	}
	look()
	if err := f.MkdirLogin(volume.LoginDir); err != nil {
		t.Fatal(err)
	}
	look(OK)
	if err := os.Chmod(filepath.Join(dir, volume.LoginDir), 0o777); err != nil {
		t.Fatal(err)
	}
	look(Warn)
}

func TestWritableByOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if v := verdicts(examineOne(t, dir), "permissions"); !slices.Equal(v, []Verdict{Warn}) {
		t.Errorf("got %v", v)
	}
}

func TestTwoDirectories(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	link := filepath.Join(b, "link")
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	for second, want := range map[string]Verdict{link: OK, b: Refuse} {
		ctx, cancel := context.WithCancel(t.Context())
		if second == b {
			cancel() // it need not wait for what will not come
		}
		all, err := Examine(ctx, []string{a, second}, Options{Rounds: 5})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if v := verdicts(all[1], "same directory"); !slices.Equal(v, []Verdict{want}) {
			t.Errorf("%s: got %v, want %v: %+v", second, v, want, all[1].Findings)
		}
	}
}

func TestNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "-not"} {
		if _, err := Examine(t.Context(), []string{path}, Options{}); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}

func TestMountTable(t *testing.T) {
	const nfs = "51 22 0:44 / /mnt/share rw,relatime shared:1 - nfs4 srv:/export rw,"
	for _, x := range []struct {
		name, line string
		hosts      int
		want       Verdict
		says       string // in a finding or a fix
	}{
		{"good NFS", nfs + "vers=4.2,hard,lookupcache=none,local_lock=none", 3, OK, ""},
		{"cached names", nfs + "vers=4.2,hard,local_lock=none", 3, Refuse, "lookupcache=none"},
		{"soft NFS", nfs + "vers=4.2,soft,lookupcache=none", 3, Refuse, "mount -t nfs4 -o hard,vers=4.2,lookupcache=none srv:/export /mnt/share"},
		{"local locks", nfs + "vers=4.2,hard,lookupcache=none,local_lock=flock", 3, Refuse, "do not exclude other hosts"},
		{"NFSv3", nfs + "vers=3,hard,lookupcache=none", 3, Refuse, "never freed"},
		{"EFS", strings.Replace(nfs, "srv:", "fs-1.efs.eu-west-1.amazonaws.com:", 1) + "vers=4.1,hard,lookupcache=none", 3, Warn, "EFS"},
		{"Lustre without flock", "51 22 0:44 / /mnt/share rw - lustre mds:/fs rw", 3, Refuse, "-o flock"},
		{"Lustre", "51 22 0:44 / /mnt/share rw - lustre mds:/fs rw,flock", 3, OK, ""},
		{"Gluster", "51 22 0:44 / /mnt/share rw - fuse.glusterfs srv:/vol/sub rw", 3, Warn, "gluster volume set vol performance.$o off"},
		{"Gluster by list", "51 22 0:44 / /mnt/share rw - fuse.glusterfs a,b:vol rw", 3, Warn, "direct-io-mode=enable a,b:vol /mnt/share"},
		{"CephFS", "51 22 0:44 / /mnt/share rw - ceph mon:/ rw", 3, OK, ""},
		{"CephFS that forgets", "51 22 0:44 / /mnt/share rw - ceph mon:/ rw,recover_session=clean", 3, Refuse, "recover_session=no"},
		{"SMB", "51 22 0:44 / /mnt/share rw - cifs //srv/x rw", 1, Refuse, "SMB"},
		{"sshfs", "51 22 0:44 / /mnt/share rw - fuse.sshfs srv:/ rw", 3, Refuse, ""},
		{"another FUSE", "51 22 0:44 / /mnt/share rw - fuse.mine x rw", 3, Warn, "mount -t fuse.mine -o attr_timeout=0"},
		{"FUSE without a type", "51 22 0:44 / /mnt/share rw - fuse src rw", 3, Warn, "mount it anew with -o attr_timeout=0,entry_timeout=0,negative_timeout=0,direct_io\n"},
		{"ext4 on one host", "51 22 0:44 / /mnt/share rw - ext4 /dev/sdb rw", 1, OK, ""},
		{"ext4 on three hosts", "51 22 0:44 / /mnt/share rw - ext4 /dev/sdb rw", 3, Refuse, "belongs to one host"},
		{"ext4 without barriers", "51 22 0:44 / /mnt/share rw - ext4 /dev/sdb rw,nobarrier", 1, Warn, "power cut"},
		{"read-only", "51 22 0:44 / /mnt/share ro - ext4 /dev/sdb rw", 1, Refuse, "remount,rw"},
		{"memory", "51 22 0:44 / /mnt/share rw - tmpfs none rw", 1, Warn, "memory"},
	} {
		mounts, err := parseMounts(strings.NewReader("22 1 8:1 / / rw - ext4 /dev/sda rw\n" + x.line + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := find(mounts, "/mnt/share/holdfast", "0:44")
		if !ok || m.point != "/mnt/share" {
			t.Fatalf("%s: found %+v", x.name, m)
		}
		r := &Report{Verdict: OK, Path: "/mnt/share/holdfast"}
		r.judge(m, x.hosts)
		if r.Verdict != x.want {
			t.Errorf("%s: got %s, want %s: %+v", x.name, r.Verdict, x.want, r.Findings)
		}
		said := ""
		for _, f := range r.Findings {
			said += f.Detail + "\n" + strings.Join(f.Fix, "\n") + "\n"
		}
		if !strings.Contains(said, x.says) {
			t.Errorf("%s: it does not say %q: %s", x.name, x.says, said)
		}
		if strings.Contains(said, "mount -t fuse -o") {
			t.Errorf("%s: mount does not know a type fuse: %s", x.name, said)
		}
	}
}

func TestMountOfAPath(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader(`22 1 8:1 / / rw - ext4 /dev/sda rw
30 22 0:30 / /mnt rw - btrfs /dev/sdb rw
31 22 0:44 / /mnt/with\040blank rw - nfs4 srv:/a rw
32 22 0:45 / /mnt/with\040blank rw - nfs4 srv:/b rw
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ path, device, want string }{
		{"/etc", "8:1", "/dev/sda"},
		{"/mntx", "8:1", "/dev/sda"},
		{"/mnt/sub", "0:99", "/dev/sdb"}, // a btrfs subvolume has a device of its own
		{"/mnt/with blank/x", "0:44", "srv:/a"},
		{"/mnt/with blank/x", "0:45", "srv:/b"},
	} {
		if m, ok := find(mounts, x.path, x.device); !ok || m.source != x.want {
			t.Errorf("%s on %s: got %+v, want %s", x.path, x.device, m, x.want)
		}
	}
	if _, err := parseMounts(strings.NewReader("nonsense\n")); err == nil {
		t.Error("nonsense was read")
	}
}
