// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
)

func quotas(t *testing.T, all ...access.Quota) *access.Rules {
	t.Helper()
	r, err := access.Compile(&access.File{Quotas: all}, 3)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLimits: the lowest limit of each kind counts, of the quotas that name the caller.
func TestLimits(t *testing.T) {
	r := quotas(t,
		access.Quota{Who: []string{"service:*"}, Limits: map[string]any{"locks": int64(100), "requests_per_s": int64(50)}},
		access.Quota{Prefix: "astro/", Limits: map[string]any{"locks": int64(1), "file_bytes": int64(10)}},
		access.Quota{Who: []string{"service:ci", "group:slow"}, Limits: map[string]any{"locks": int64(200), "requests_per_s": int64(5), "append_bytes_per_s": int64(7)}},
		access.Quota{Who: []string{"anonymous"}, Limits: map[string]any{"sessions": int64(9)}},
	)
	for _, x := range []struct {
		name string
		c    *access.Caller
		want *access.Limits
	}{
		{"of its kind", &access.Caller{Identity: "service:web"}, &access.Limits{Locks: 100, Requests: 50, Sessions: 9}},
		{"of two quotas", &access.Caller{Identity: "service:ci"}, &access.Limits{Locks: 100, Requests: 5, AppendBytes: 7, Sessions: 9}},
		{"by its group", &access.Caller{Identity: "user:a", Groups: []string{"group:slow"}}, &access.Limits{Locks: 200, Requests: 5, AppendBytes: 7, Sessions: 9}},
		{"a stranger", nil, &access.Limits{Sessions: 9}},
		{"an operator", &access.Caller{Identity: "service:ci", Operator: true}, nil},
	} {
		if got := r.Limits(x.c); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", x.name, got, x.want)
		}
	}
	other := quotas(t, access.Quota{Who: []string{"*"}, Limits: map[string]any{"sessions": int64(9)}})
	if other.Limits(nil) != nil || other.Limits(&access.Caller{Identity: "user:a"}) == nil || other.CountsIdentities() || !r.CountsIdentities() {
		t.Error(`"*" is everybody with a credential, and sessions are not counted in the table`)
	}
	if x := (*access.Rules)(nil); x.Limits(nil) != nil || x.CountsIdentities() || x.PrefixLimits() != nil || x.Tell(nil, "l", "f") != nil {
		t.Error("no rules limit something")
	}
}

// TestPrefixLimits: there is one for each prefix, in order, and callers are told of those of a name.
func TestPrefixLimits(t *testing.T) {
	r := quotas(t,
		access.Quota{Prefix: "b/", Limits: map[string]any{"locks": int64(5)}},
		access.Quota{Prefix: "a/", Limits: map[string]any{"waiters": int64(4)}},
		access.Quota{Who: []string{"*"}, Limits: map[string]any{"watches": int64(6)}},
		access.Quota{Prefix: "b/", Limits: map[string]any{"locks": int64(3), "file_bytes": int64(9)}},
		access.Quota{Prefix: "b/c", Limits: map[string]any{"file_bytes": int64(8)}},
	)
	want := []access.PrefixLimits{
		{Prefix: "a/", Limits: access.Limits{Waiters: 4}}, {Prefix: "b/", Limits: access.Limits{Locks: 3, FileBytes: 9}},
		{Prefix: "b/c", Limits: access.Limits{FileBytes: 8}},
	}
	if got := r.PrefixLimits(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	alice := &access.Caller{Identity: "user:alice"}
	for _, x := range []struct {
		lock, file string
		want       []access.Told
	}{
		{"", "", []access.Told{{Name: "watches", Most: 6}}},
		{"b/cd", "", []access.Told{{Name: "watches", Most: 6}, {Name: "locks", Most: 3, Prefix: "b/"}}},
		{"a/x", "b/cd", []access.Told{{Name: "watches", Most: 6}, {Name: "waiters", Most: 4, Prefix: "a/"}, {Name: "file_bytes", Most: 9, Prefix: "b/"}, {Name: "file_bytes", Most: 8, Prefix: "b/c"}}},
	} {
		if got := r.Tell(alice, x.lock, x.file); !reflect.DeepEqual(got, x.want) {
			t.Errorf("lock %q, file %q: %+v", x.lock, x.file, got)
		}
	}
}

func TestQuotaIsRefused(t *testing.T) {
	locks := map[string]any{"locks": int64(1)}
	for want, q := range map[string]access.Quota{
		"neither who":          {Limits: locks},
		"one of them":          {Who: []string{"*"}, Prefix: "a", Limits: locks},
		"no pattern":           {Prefix: "a/**", Limits: locks},
		`who "alice"`:          {Who: []string{"alice"}, Limits: locks},
		"limits is empty":      {Who: []string{"*"}},
		"file_bytes is of":     {Who: []string{"*"}, Limits: map[string]any{"file_bytes": int64(1)}},
		"sessions is of":       {Prefix: "a/", Limits: map[string]any{"sessions": int64(1)}},
		"watches is of":        {Prefix: "a/", Limits: map[string]any{"watches": int64(1)}},
		"requests_per_s is of": {Prefix: "a/", Limits: map[string]any{"requests_per_s": int64(1)}},
		"append_bytes_per_s":   {Prefix: "a/", Limits: map[string]any{"append_bytes_per_s": int64(1)}},
	} {
		_, err := access.Compile(&access.File{Quotas: []access.Quota{{Who: []string{"*"}, Limits: locks}, q}}, 1)
		if err == nil || !strings.HasPrefix(err.Error(), "quota 2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestLimitValues(t *testing.T) {
	for _, x := range []struct {
		name  string
		value any
		want  int64 // -1: it is refused
	}{
		{"locks", int64(1), 1}, {"locks", int64(0), -1}, {"locks", int64(-3), -1}, {"locks", "1", -1}, {"locks", 1.5, -1}, {"locks", "1KB", -1}, {"lokcs", int64(1), -1}, {"", int64(1), -1},
		{"append_bytes_per_s", int64(7), 7}, {"append_bytes_per_s", "20MB", 20e6}, {"append_bytes_per_s", "20 MB", 20e6}, {"append_bytes_per_s", "1KiB", 1024},
		{"append_bytes_per_s", "1TB", 1e12}, {"append_bytes_per_s", "3TiB", 3 << 40}, {"append_bytes_per_s", "7B", 7}, {"append_bytes_per_s", "2GiB", 2 << 30}, {"append_bytes_per_s", "5KB", 5000},
		{"append_bytes_per_s", "1MiB", 1 << 20}, {"append_bytes_per_s", "1GB", 1e9}, {"append_bytes_per_s", "7", -1}, {"append_bytes_per_s", "", -1}, {"append_bytes_per_s", "0MB", -1}, {"append_bytes_per_s", "-1MB", -1},
		{"append_bytes_per_s", "1.5MB", -1}, {"append_bytes_per_s", "MB", -1}, {"append_bytes_per_s", "1mb", -1}, {"append_bytes_per_s", "1PB", -1},
		{"append_bytes_per_s", "9223372036854775807TB", -1}, {"append_bytes_per_s", true, -1}, {"append_bytes_per_s", int64(0), -1},
	} {
		r, err := access.Compile(&access.File{Quotas: []access.Quota{{Who: []string{"*"}, Limits: map[string]any{x.name: x.value}}}}, 1)
		if x.want < 0 {
			if err == nil || !strings.Contains(err.Error(), "quota 1: limits: ") {
				t.Errorf("%s = %v: %v", x.name, x.value, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s = %v: %v", x.name, x.value, err)
			continue
		}
		if got := r.Tell(&access.Caller{Identity: "user:a"}, "", ""); len(got) != 1 || got[0] != (access.Told{Name: x.name, Most: x.want}) {
			t.Errorf("%s = %v: %+v", x.name, x.value, got)
		}
	}
}

// FuzzQuota: a limit is one or more, whatever the text.
func FuzzQuota(f *testing.F) {
	for _, s := range []string{"1", "20MB", "1 GiB", "9223372036854775807B", "-1KB", "10TB"} {
		f.Add("append_bytes_per_s", s, "", "*")
		f.Add("file_bytes", s, "a/", "")
	}
	f.Fuzz(func(t *testing.T, name, value, prefix, who string) {
		q := access.Quota{Prefix: prefix, Limits: map[string]any{name: value}}
		if who != "" {
			q.Who = []string{who}
		}
		r, err := access.Compile(&access.File{Quotas: []access.Quota{q}}, 1)
		if err != nil {
			return
		}
		all := r.Tell(&access.Caller{Identity: "user:a", Groups: []string{who}}, prefix+"x", prefix+"x")
		for _, x := range all {
			if x.Name != name || x.Most < 1 || x.Prefix != prefix {
				t.Errorf("%+v", x)
			}
		}
		if len(all) == 0 && prefix != "" {
			t.Error("a quota of a prefix holds for nothing")
		}
	})
}
