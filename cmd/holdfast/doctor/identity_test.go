// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeHost makes what the kernel of a host shows of it. A file with the content "-" is not there.
func fakeHost(t *testing.T, boot, hostname string, more map[string]string) (system string) {
	t.Helper()
	system = t.TempDir()
	files := map[string]string{
		"proc/sys/kernel/random/boot_id":           boot + "\n",
		"proc/sys/kernel/hostname":                 hostname + "\n",
		"proc/self/ns/uts":                         initialUTS,
		"sys/fs/nfs/net/nfs_client/identifier":     "(null)\n",
		"sys/module/nfs/parameters/nfs4_unique_id": "\n",
	}
	maps.Copy(files, more)
	for name, text := range files {
		path := filepath.Join(system, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case err != nil || text == "-":
		case filepath.Base(name) == "uts":
			err = os.Symlink(text, path)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return system
}

// fakeMount is a mount of NFS.
func fakeMount(t *testing.T, line string) mount {
	t.Helper()
	mounts, err := parseMounts(strings.NewReader(line + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return mounts[0]
}

// TestOneNFSClient tells two hosts that are one client for their NFS server from those that are not,
// and from those of which that cannot be told.
func TestOneNFSClient(t *testing.T) {
	const module, namespace, uts = "sys/module/nfs/parameters/nfs4_unique_id", "sys/fs/nfs/net/nfs_client/identifier", "proc/self/ns/uts"
	good := nfsLine("vers=4.2,", "hard,lookupcache=none,")
	for _, x := range []struct {
		name           string
		boot, hostname string // of the second; the first is machine1, called web
		one, two       map[string]string
		mount          string // of the second
		same           bool
		doubts         string
	}{
		{"clones", "machine2", "web", nil, nil, good, true, ""},
		{"clones of a kernel without namespaces", "machine2", "web", map[string]string{namespace: "-"}, map[string]string{namespace: "-"}, good, true, ""},
		{"clones with the identity of their image", "machine2", "web", map[string]string{module: "image\n"}, map[string]string{module: "image\n"}, good, true, ""},
		{"two mounts of one machine", "machine1", "web", nil, nil, good, false, ""},
		{"a machine that cannot be told", "", "web", nil, nil, good, false, ""},
		{"other hostnames", "machine2", "db", nil, nil, good, false, ""},
		{"an identity of its own", "machine2", "web", nil, map[string]string{module: "b\n"}, good, false, ""},
		{"identities of their own", "machine2", "web", map[string]string{module: "a\n"}, map[string]string{module: "b\n"}, good, false, ""},
		{"identities of their namespaces", "machine2", "web", map[string]string{namespace: "a\n", module: "x\n"}, map[string]string{namespace: "b\n", module: "x\n"}, good, false, ""},
		{"other versions", "machine2", "web", nil, nil, nfsLine("vers=4.1,", "hard,"), false, ""},
		{"version 3", "machine2", "web", nil, nil, nfsLine("vers=3,", "hard,"), false, ""},
		{"no NFS", "machine2", "web", nil, nil, "51 22 0:44 / /mnt/share rw - ceph mon:/ rw", false, ""},
		{"a container", "machine2", "web", nil, map[string]string{uts: "uts:[4026532201]"}, good, true, "of a container"},
		{"not root", "machine2", "web", map[string]string{module: "-"}, nil, good, true, "cannot be read"},
		{"another address", "machine2", "web", nil, nil, strings.ReplaceAll(good, "10.0.0.1", "10.0.9.9"), true, `"10.0.0.1" and "10.0.9.9"`},
		{"another name of one address", "machine2", "web", nil, nil, strings.Replace(good, "10.0.0.1:/srv", "nas.example:/srv", 1), true, ""},
		{"no addresses", "machine2", "web", nil, nil, strings.Replace(good, ",addr=10.0.0.1", "", 1), true, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			one := nfsClientOf(Options{System: fakeHost(t, "machine1", "web", x.one)}, fakeMount(t, good))
			two := nfsClientOf(Options{System: fakeHost(t, x.boot, x.hostname, x.two)}, fakeMount(t, x.mount))
			same, doubts := one.collide(two)
			again, doubtsAgain := two.collide(one)
			if same != x.same || again != same || len(doubtsAgain) != len(doubts) {
				t.Errorf("one client: %v, and from the other side %v, want %v (%+v, %+v)", same, again, x.same, one, two)
			}
			if text := strings.Join(doubts, "; "); !strings.Contains(text, x.doubts) || (text == "") != (x.doubts == "") {
				t.Errorf("doubts %q, want %q", text, x.doubts)
			}
		})
	}
	version4 := nfsLine("vers=4.0,", "hard,")
	one := nfsClientOf(Options{System: fakeHost(t, "machine1", "web", nil)}, fakeMount(t, version4))
	two := nfsClientOf(Options{System: fakeHost(t, "machine2", "web", nil)}, fakeMount(t, version4))
	if same, doubts := one.collide(two); !same || len(doubts) != 1 {
		t.Errorf("vers=4.0: %v, %q", same, doubts)
	}
}

// TestTwoHostsThatAreOneNFSClient: two doctors find it out, both say it, and what it makes of the locks
// is not tried, for it may take for ever. A doubt of it leaves the trial as it is.
func TestTwoHostsThatAreOneNFSClient(t *testing.T) {
	for _, x := range []struct {
		name      string
		boot      string
		container bool
		want      []Verdict
		tried     bool
	}{
		{"clones", "machine2", false, []Verdict{Refuse}, false},
		{"containers of one name", "machine2", true, []Verdict{Warn}, true},
		{"one machine", "machine1", false, nil, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			mounts := asNFS(t, dir, "hard,lookupcache=none,")
			more := map[string]string{}
			if x.container {
				more["proc/self/ns/uts"] = "uts:[4026532201]"
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listener := Options{Mounts: mounts, System: fakeHost(t, "machine1", "web", nil)}
			var theirs *Report
			ended := make(chan error, 1)
			go func() {
				var err error
				theirs, err = Listen(t.Context(), l, dir, listener)
				ended <- err
			}()
			mine, err := ExamineWith(t.Context(), dir, l.Addr().String(), Options{Rounds: 2, Mounts: mounts, System: fakeHost(t, x.boot, "web", more)})
			if err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			for name, r := range map[string]*Report{"caller": mine, "listener": theirs} {
				if v := verdicts(r, identityCheck); !slices.Equal(v, x.want) || len(verdicts(r, "same directory")) > 0 != x.tried {
					t.Errorf("%s: got %v, want %v, and a trial: %v\n%+v", name, v, x.want, x.tried, r.Findings)
				}
			}
			for _, f := range mine.Findings {
				if f.Check == identityCheck && (!strings.Contains(f.Detail, `hostname "web"`) || !strings.Contains(f.Fix[0], "nfs4_unique_id=$id") || !strings.HasPrefix(f.Fix[1], "umount "+dir)) {
					t.Errorf("got %+v", f)
				}
			}
		})
	}
}
