// SPDX-License-Identifier: Apache-2.0

package terraform_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/terraform"
)

// uuid is a lock ID as OpenTofu draws it.
const uuid = "1d9e4b8e-25b4-4d3f-9f7e-0b6c3f5a2e11"

func TestNames(t *testing.T) {
	n := terraform.Name("net/prod")
	if n.Lock() != "terraform/net/prod" || n.File() != "terraform/net/prod.tfstate" || n.Validate() != nil {
		t.Errorf("%s, %s, %v", n.Lock(), n.File(), n.Validate())
	}
	for _, wrong := range []terraform.Name{"", "/a", "../a", "a//b", "a/", terraform.Name(strings.Repeat("x", 500))} {
		if wrong.Validate() == nil {
			t.Errorf("%q may be a name", wrong)
		}
	}
}

// A lock ID has a client for the lock and one for states, which no other lock ID has.
func TestClients(t *testing.T) {
	if h, w := terraform.Holder(uuid), terraform.Writer(uuid); h != "tf-"+uuid || w != "tf-"+uuid+"/state" {
		t.Errorf("%s, %s", h, w)
	}
	seen := map[cluster.ClientID]string{}
	for _, id := range []string{uuid, "x", "x/state", "ä", "a b", strings.Repeat("y", 64), strings.Repeat("y", 65), strings.Repeat("y", 4000), "\x00", "tf-x", "h-x"} {
		for _, c := range []cluster.ClientID{terraform.Holder(id), terraform.Writer(id)} {
			if err := c.Validate(); err != nil || c.Opened() || c.OneShot() {
				t.Errorf("%.80q has client %q: %v", id, c, err)
			}
			if other, ok := seen[c]; ok {
				t.Errorf("%.80q and %.80q have the client %s", id, other, c)
			}
			seen[c] = id
		}
	}
}

func TestParseLockInfo(t *testing.T) {
	for body, wrong := range map[string]string{
		``: "no LockInfo", `[]`: "no LockInfo", `{}`: "lock ID is missing", `{"ID":""}`: "lock ID is missing", `{"ID":7}`: "no LockInfo",
		`{"ID":"a","Created":"today"}`: "no LockInfo", `{"ID":"a"`: "no LockInfo", `{"ID":"a","Later":[1]}`: "",
	} {
		i, err := terraform.ParseLockInfo([]byte(body))
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) || err == nil && i.ID != "a" {
			t.Errorf("%s: %+v, %v, want %q", body, i, err, wrong)
		}
	}
}

// The metadata has all that was said if there is room for it, and the ID in any case.
func TestMetadata(t *testing.T) {
	i := terraform.LockInfo{ID: uuid, Operation: "OperationTypeApply", Info: "i", Who: "ann@h", Version: "1.12.6", Created: time.Unix(1, 5).UTC(), Path: "p"}
	for _, long := range []int{1, 3000, 5000} {
		i.Info, i.Path = strings.Repeat("i", long), strings.Repeat("p", long/2)
		said, err := i.Metadata()
		got, wrong := terraform.ParseLockInfo([]byte(said))
		if err != nil || wrong != nil || len(said) > cluster.MaxMetadata {
			t.Fatalf("%d bytes: %v, %v", len(said), err, wrong)
		}
		want := i
		if long > 1 {
			want.Info = ""
		}
		if *got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if _, err := (&terraform.LockInfo{ID: strings.Repeat("x", 5000)}).Metadata(); err == nil {
		t.Error("an ID of 5000 bytes is kept")
	}
	for who, want := range map[string]string{"ann@h": "ann@h", "h": "h", "ann@h@x": "ann@h_x", "": "", strings.Repeat("ä", 300): strings.Repeat("ä", cluster.MaxText/2)} {
		h := (&terraform.LockInfo{Who: who, Operation: "Apply\xff"}).HolderOf()
		if h.Host != want || h.Command != "terraform Apply?" {
			t.Errorf("%.20q: %.20q, %q", who, h.Host, h.Command)
		}
	}
}

// Whoever waits is told what the holder said, if the holder said it, and what is known otherwise.
func TestInfoOf(t *testing.T) {
	since := time.UnixMilli(5000).UTC()
	own := fmt.Sprintf(`{"ID":%q,"Operation":"Apply","Who":"ann@h"}`, uuid)
	for _, x := range []struct {
		held                terraform.Held
		id, operation, path string
	}{
		{terraform.Held{Client: terraform.Holder(uuid), Token: 7, Metadata: own, Since: since}, uuid, "Apply", ""},
		{terraform.Held{Client: terraform.Holder(uuid), Token: 7, Command: "terraform Apply", Since: since}, uuid, "terraform Apply", "terraform/n"},
		{terraform.Held{Client: "other", Token: 7, Metadata: own, Command: "make", Since: since}, "holdfast-token-7", "make", "terraform/n"},
		{terraform.Held{Client: "@5", Token: 8, Metadata: "mine", Since: since}, "holdfast-token-8", "", "terraform/n"},
		{terraform.Held{}, "holdfast-queue", "others wait for the lock", "terraform/n"},
	} {
		i := terraform.InfoOf("n", &x.held)
		if i.ID != x.id || i.Operation != x.operation || i.Path != x.path {
			t.Errorf("%+v: %+v", x.held, i)
		}
		if b, err := json.Marshal(i); err != nil || bytes.Contains(b, []byte(`"Created":""`)) {
			t.Errorf("%s, %v", b, err)
		}
	}
}

func TestRequest(t *testing.T) {
	for state, want := range map[string]cluster.RequestID{
		`{"serial":0}`: 1, `{"version":4,"serial":41,"lineage":"x"}`: 42, `{"serial":9007199254740993}`: 9007199254740994, `{"serial":9223372036854775805}`: 9223372036854775806,
		`{"serial":9223372036854775806}`: 0, `{"serial":18446744073709551615}`: 0, `{"serial":-1}`: 0, `{"serial":1.5}`: 0, `{"serial":"1"}`: 0, `{}`: 0, `[]`: 0, ``: 0, "\n": 0, `{"serial":1`: 0, `null`: 0,
	} {
		got, err := terraform.Request([]byte(state))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v, want %d", state, got, err, want)
		}
	}
}

// What is kept comes back, compressed where one append does not carry it.
func TestPack(t *testing.T) {
	noise := make([]byte, 2<<20)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(noise) // never fails
	large := []byte(`{"serial":1,"x":"` + strings.Repeat("resource ", 400_000) + `"}`)
	for _, state := range [][]byte{[]byte(`{"serial":1}`), large[:cluster.MaxAppend], large} {
		data, err := terraform.Pack(state)
		if err != nil || len(data) > cluster.MaxAppend {
			t.Fatalf("%d bytes as %d: %v", len(state), len(data), err)
		}
		if got, err := terraform.Unpack(data); err != nil || !bytes.Equal(got, state) {
			t.Errorf("%d bytes come back as %d: %v", len(state), len(got), err)
		}
	}
	if _, err := terraform.Pack(noise); err == nil {
		t.Error("2 MiB of noise fit")
	} else if e, ok := errors.AsType[*terraform.TooLargeError](err); !ok || e.Size != len(noise) || e.Packed <= cluster.MaxAppend {
		t.Errorf("%v", err)
	}
	if got, err := terraform.Unpack([]byte(terraform.Deleted)); got != nil || err != nil {
		t.Errorf("a deletion is %q, %v", got, err)
	}
}

// FuzzUnpack: whatever stands in a file, an answer is bounded.
func FuzzUnpack(f *testing.F) {
	packed, err := terraform.Pack([]byte(strings.Repeat("x", cluster.MaxAppend+1)))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{nil, []byte("\n"), []byte("{}"), packed, packed[:len(packed)/2], []byte("\x1f\x8b")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if state, err := terraform.Unpack(data); err == nil && len(state) > max(terraform.MaxState, len(data)) {
			t.Errorf("%d bytes become %d", len(data), len(state))
		}
	})
}

// FuzzParse: a LockInfo that was read can be kept, or is refused, and what was kept is read as the same holder's.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"ID":"` + uuid + `","Operation":"OperationTypeApply","Info":"","Who":"ann@h","Version":"1.12.6","Created":"2026-11-28T12:00:00.5Z","Path":""}`))
	f.Add([]byte(`{"ID":"\ud800","Created":"9999-12-31T23:59:59+23:59"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		i, err := terraform.ParseLockInfo(body)
		if err != nil {
			return
		}
		said, err := i.Metadata()
		if err != nil {
			return
		}
		held := terraform.Held{Client: terraform.Holder(i.ID), Token: 1, Metadata: said}
		if got := terraform.InfoOf("n", &held); len(said) > cluster.MaxMetadata || got.ID != i.ID {
			t.Errorf("%q is kept as %q, and read as of %q", body, said, got.ID)
		}
	})
}
