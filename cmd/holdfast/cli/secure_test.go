// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// older is a volume of an older version, with two servers.
type older struct {
	t   *testing.T
	dir string
	fs  *osfs.FS
}

func newOlder(t *testing.T) *older {
	t.Helper()
	x := &older{t: t, dir: t.TempDir()}
	var err error
	if x.fs, err = osfs.Open(x.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.fs.Close() })
	if _, err := volume.Init(t.Context(), x.fs, cluster.Members{{ID: 1, Client: "h:1", Peer: "h:2"}, {ID: 2, Client: "i:1", Peer: "i:2"}}, rand.Reader); err != nil {
		t.Fatal(err)
	}
	x.wants("none none", true)
	if err := os.Remove(filepath.Join(x.dir, "servers", "tls-required")); err != nil {
		t.Fatal(err)
	}
	return x
}

// wants compares what holdfast secure status says.
func (x *older) wants(states string, required bool) {
	x.t.Helper()
	r := run("", "", "secure", "status", "--volume", x.dir, "-o", "json")
	var s struct {
		TLSRequired bool `json:"tls_required"`
		Servers     []struct{ State string }
	}
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || r.code != 0 || len(s.Servers) != 2 {
		x.t.Fatalf("got %+v: %v", r, err)
	}
	if got := s.Servers[0].State + " " + s.Servers[1].State; got != states || s.TLSRequired != required {
		x.t.Errorf("got %s, required %v, want %s, %v", got, s.TLSRequired, states, required)
	}
}

// runs has a process of a server show its key.
func (x *older) runs(id cluster.ServerID, key string) {
	x.t.Helper()
	v, err := volume.Open(x.fs, volume.Options{Server: id, Random: rand.Reader})
	if err != nil {
		x.t.Fatal(err)
	}
	defer v.Close()
	if err := v.WriteProcess(volume.Process{Nonce: 1, Count: 1, PID: 77, Host: "h", Key: key}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *older) require(more ...string) result {
	return run("", "", append([]string{"secure", "require", "--volume", x.dir}, more...)...)
}

// TestSecure: a volume of an older version, whose servers are upgraded one after the other.
func TestSecure(t *testing.T) {
	x, own := newOlder(t), volume.KeyID{1}
	x.runs(1, own.String())
	x.runs(2, "")
	x.wants("unknown plain", false)
	if r := x.require(); r.code != 5 || !strings.Contains(r.errs, "server 1, 2 last ran without a key") {
		t.Errorf("too early: %+v", r)
	}
	if err := volume.WriteKey(x.fs, 1, own, nil); err != nil {
		t.Fatal(err)
	}
	if r := x.require(); r.code != 5 || !strings.Contains(r.errs, "server 2 last ran") {
		t.Errorf("too early: %+v", r)
	}
	x.wants("tls plain", false)
	x.runs(2, own.String())
	if err := volume.WriteKey(x.fs, 2, own, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := x.require(); r.code != 0 {
			t.Errorf("when all have keys: %+v", r)
		}
	}
	x.wants("tls tls", true)
	if r := run("", "", "secure", "status", "--volume", x.dir); !strings.Contains(r.out, "server 1   TLS: process 77 on host h\n") || !strings.Contains(r.out, "over TLS only") {
		t.Errorf("got %+v", r)
	}
}

func TestSecureRequireLeavesOut(t *testing.T) {
	x := newOlder(t)
	x.runs(2, "")
	if r := x.require("--force"); r.code != 0 {
		t.Errorf("got %+v", r)
	}
	x.wants("none plain", true)
}

// TestSecureRequireOfWhatCannotBeRead: a sign of life that is half written is one, perhaps of an older version.
func TestSecureRequireOfWhatCannotBeRead(t *testing.T) {
	x := newOlder(t)
	x.runs(2, "")
	f, err := os.OpenFile(filepath.Join(x.dir, "servers", "2.process"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("{half"), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	x.wants("none unread", false)
	if r := x.require(); r.code != 5 || !strings.Contains(r.errs, "server 2 last ran") {
		t.Errorf("too early: %+v", r)
	}
	if r := run("", "", "secure", "status", "--volume", x.dir); !strings.Contains(r.out, "server 2   WHAT RAN LAST CANNOT BE READ") {
		t.Errorf("got %+v", r)
	}
}

// TestRotateSigning: the new key is in keys.json, fsck finds nothing to say, and a second call makes no other one.
func TestRotateSigning(t *testing.T) {
	x := newOlder(t)
	rotate := func(more ...string) result {
		return run("", "", append([]string{"secure", "rotate", "signing", "--volume", x.dir}, more...)...)
	}
	if r := rotate(); r.code != 5 || !strings.Contains(r.errs, "holdfast secure offer") {
		t.Errorf("a volume without a key: %+v", r)
	}
	if r := run("", "", "secure", "offer", "--volume", x.dir); r.code != 0 {
		t.Fatal(r)
	}
	var ids []string
	for _, more := range [][]string{{"-o", "json"}, {"-o", "json"}, {"-o", "json", "--now"}} {
		var said struct {
			Key       string
			SignsFrom time.Time `json:"signs_from"`
		}
		r := rotate(more...)
		if err := json.Unmarshal([]byte(r.out), &said); err != nil || r.code != 0 {
			t.Fatalf("%+v: %v", r, err)
		}
		if now := len(more) > 2; said.SignsFrom.After(time.Now().Add(time.Minute)) == now {
			t.Errorf("%v: it signs from %v", more, said.SignsFrom)
		}
		if b, err := os.ReadFile(filepath.Join(x.dir, "keys.json")); err != nil || !strings.Contains(string(b), said.Key) {
			t.Errorf("keys.json has %s, %v; want %s", b, err, said.Key)
		}
		ids = append(ids, said.Key)
	}
	if ids[0] != ids[1] || ids[1] == ids[2] {
		t.Errorf("the keys are %v", ids)
	}
	if r := rotate("--now"); r.code != 0 || !strings.Contains(r.out, "servers sign with it from ") {
		t.Errorf("got %+v", r)
	}
	if r := run("", "", "fsck", "--volume", x.dir); strings.Contains(r.out, "sign") || strings.Contains(r.out, "keys.json") {
		t.Errorf("fsck: %+v", r)
	}
}
