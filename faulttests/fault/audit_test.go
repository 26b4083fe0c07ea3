// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
)

// audited returns what holdfast audit tells.
func audited(t *testing.T, c *cluster.Cluster, args ...string) []audit.Event {
	t.Helper()
	out, err := c.Run(append([]string{"audit", "--volume", c.Dir(), "-o", "json"}, args...)...)
	if err != nil {
		t.Fatalf("holdfast audit: %v: %s", err, out)
	}
	var r struct{ Events []audit.Event }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return r.Events
}

func has(all []audit.Event, fits func(*audit.Event) bool) bool {
	return slices.ContainsFunc(all, func(e audit.Event) bool { return fits(&e) })
}

// TestAudit has operators and others do what the audit is about, kills a server while it writes, and wants all of it told,
// of killed servers what was older than a moment, and no secret in any line.
func TestAudit(t *testing.T) {
	needFaults(t)
	b := besiege(t)
	b.run("access", "logins")
	refused := func(url, credential, path, body string, want int) {
		t.Helper()
		if code, text := b.ask(url, credential, http.MethodPost, path, body); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
	}
	forged := "hfk_" + strings.Repeat("Z", 43)
	for _, s := range b.Servers() {
		refused("http://"+s.Member.Client, b.evil, "/v1/acquire", `{"lock":"service/ci/x","ttl":"10s"}`, http.StatusForbidden)
		refused("http://"+s.Member.Client, forged, "/v1/acquire", `{"lock":"service/ci/x","ttl":"10s"}`, http.StatusUnauthorized)
	}
	cluster.Await(t, cluster.Patience, "a login to be looked at", func() bool {
		code, _ := b.ask(b.url, "", http.MethodPost, "/v1/login", `{"challenge":"`+b.ci+`"}`)
		return code == http.StatusUnauthorized
	})
	refused(b.url, b.ci, "/v1/acquire", `{"lock":"service/ci/held","ttl":"60s","client_id":"holder","request_id":1}`, http.StatusOK)
	run := func(args ...string) {
		t.Helper()
		if out, err := b.Run(append(args, "--endpoints", b.Dir())...); err != nil {
			t.Fatalf("holdfast %v: %v: %s", args, err, out)
		}
	}
	run("break", "service/ci/held", "--reason", "stuck with "+b.ci)
	run("handover")
	b.run("key", "revoke", "evil")
	told := func() (missing string) {
		all := audited(t, b.Cluster, "--since", "1h")
		for name, fits := range toldKinds() {
			if !has(all, fits) {
				missing += name + "; "
			}
		}
		return missing
	}
	missing := ""
	defer func() {
		if t.Failed() {
			t.Log("the audit is without ", missing)
		}
	}()
	cluster.Await(t, cluster.Patience, "the audit to have all of it", func() bool { missing = told(); return missing == "" })
	b.KillAll()
	if missing = told(); missing != "" {
		t.Errorf("killed servers leave an audit without %s", missing)
	}
	tearLastLine(t, b.Dir())
	b.tellsAfterACrash(forged)
}

// tellsAfterACrash starts the servers again, which were killed and whose audit was torn, and looks at what is there.
func (b *besieged) tellsAfterACrash(forged string) {
	t := b.t
	b.StartAll()
	b.AwaitReplicas(cluster.Patience)
	cluster.Await(t, cluster.Patience, "each server to begin anew", func() bool {
		starts := 0
		for _, e := range audited(t, b.Cluster) {
			if e.Kind == audit.KindStart {
				starts++
			}
		}
		return starts >= 2*len(b.Servers())-1 // the torn one may have been one
	})
	if all := audited(t, b.Cluster, "--denied", "--who", "service:evil"); len(all) < len(b.Servers())-1 || has(all, func(e *audit.Event) bool { return e.Kind != audit.KindDenied }) {
		t.Errorf("of service:evil, it tells %+v", all)
	}
	b.TermAll()
	noSecrets(t, b.Dir(), b.ci, b.evil, forged)
	if r, err := b.Fsck(); err != nil || slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return strings.HasPrefix(f.Path, "audit") }) {
		t.Errorf("fsck: %v, %+v", err, r.Findings)
	}
}

// toldKinds are what the audit has to tell of TestAudit.
func toldKinds() map[string]func(*audit.Event) bool {
	return map[string]func(*audit.Event) bool{
		"a denial": func(e *audit.Event) bool {
			return e.Kind == audit.KindDenied && e.Identity == "service:evil" && e.Via == "key" && e.Lock == "service/ci/x" && e.From != ""
		},
		"a bad credential": func(e *audit.Event) bool { return e.Kind == audit.KindCredential },
		"a login":          func(e *audit.Event) bool { return e.Kind == audit.KindLoginFailed && e.From != "" },
		"a break": func(e *audit.Event) bool {
			return e.Kind == audit.KindBreak && e.Lock == "service/ci/held" && e.Via == "volume" && strings.HasPrefix(e.Reason, "stuck with")
		},
		"a handover": func(e *audit.Event) bool { return e.Kind == audit.KindHandover && e.To > 0 && e.Status == "OK" },
		"a key": func(e *audit.Event) bool {
			return e.Command == "key create ci" && e.Server == 0 && slices.Contains(e.Diff, `+name = "ci"`)
		},
		"a key that ended": func(e *audit.Event) bool {
			return e.Command == "key revoke evil" && slices.Contains(e.Diff, `-name = "evil"`)
		},
		"rules": func(e *audit.Event) bool {
			return e.Command == "access set --policy=strict" && e.Version > 0 && len(e.Diff) > 0
		},
		"rules of a server":  func(e *audit.Event) bool { return e.Kind == audit.KindRules && e.Server > 0 && e.Version > 0 },
		"logins switched on": func(e *audit.Event) bool { return e.Command == "access logins" },
		"a start":            func(e *audit.Event) bool { return e.Kind == audit.KindStart && e.Server == 1 },
	}
}

// tearLastLine cuts the last line of a file of a server's in two, as a crash may.
func tearLastLine(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "audit", "1-*.jsonl"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	info, err := os.Stat(all[len(all)-1])
	if err == nil {
		err = os.Truncate(all[len(all)-1], info.Size()-20)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// noSecrets fails where a secret of the volume, or one of these, is in the audit.
func noSecrets(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	keys, err := filepath.Glob(filepath.Join(dir, "secrets", "*"))
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	for _, name := range keys {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, strings.Split(strings.TrimSpace(string(b)), "\n")...)
	}
	files, err := filepath.Glob(filepath.Join(dir, "audit", "*.jsonl"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range append(secrets, "hft_") {
			if len(s) > 3 && !strings.HasPrefix(s, "-----") && strings.Contains(string(b), s) {
				t.Errorf("%s has the secret %q", name, s)
			}
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestAuditOnAFullDisk fills the volume's filesystem: refusals are answered as before, status warns, and what happened
// meanwhile is told when there is room again.
func TestAuditOnAFullDisk(t *testing.T) {
	needFaults(t)
	opt := options()
	opt.Dir = filepath.Join(mountTmpfs(t, tmpfsBytes), "volume")
	c := cluster.Start(t, opt)
	c.AwaitReplicas(cluster.Patience)
	s := c.AwaitPrimary(cluster.Patience)
	if out, err := c.Run("access", "set", "--policy", "team", "--volume", c.Dir()); err != nil {
		t.Fatal(err, out)
	}
	ask := func() bool {
		resp, err := http.Post("http://"+s.Member.Client+"/v1/acquire", "application/json", strings.NewReader(`{"lock":"full","ttl":"10s"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	}
	cluster.Await(t, cluster.Patience, "the rules", ask)
	ballast := filepath.Join(filepath.Dir(opt.Dir), "ballast")
	fillDisk(t, ballast)
	warned := func() bool {
		out, _ := c.Run("status", "--endpoints", c.Dir()) // warnings make its exit code
		return strings.Contains(out, "the audit was not written")
	}
	asked := 0
	cluster.Await(t, cluster.Patience, "status to warn", func() bool {
		for range 12 { // lines that need more than the page that is there
			if asked++; !ask() {
				t.Fatal("a full disk lets a stranger in")
			}
		}
		return warned()
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	cluster.Await(t, cluster.Patience, "all refusals to be told", func() bool {
		n := uint64(0)
		for _, e := range audited(t, c, "--denied") {
			n += max(1, e.Count)
		}
		return n >= uint64(asked)
	})
	cluster.Await(t, cluster.Patience, "status to warn no more", func() bool { return !warned() })
}
