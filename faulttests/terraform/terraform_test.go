// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// client asks for a state as OpenTofu does: an attempt that gets no answer, or one from 500 on, is made again with the same bytes, after a pause
// that doubles. It has a connection of its own for each attempt, so that none is made again beneath it.
type client struct {
	t *testing.T
	// url is the address of the state, id the lock ID.
	url, id string
}

// tries is how often an attempt is made: retry_max 10, as docs/terraform.md advises.
const tries = 11

func (c *client) info() string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"ann@h1","Version":"1.12.6","Created":"2026-11-28T12:00:00.5Z","Path":""}`, c.id)
}

// once makes one attempt. Code 0 is none that was answered.
func (c *client) once(method, query, body string) (int, string) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+query, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return 0, ""
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// ask makes attempts until one is answered. It returns an error unless that has this code.
func (c *client) ask(want int, method, query, body string) (string, error) {
	code, said := 0, ""
	pause := 100 * time.Millisecond
	for range tries {
		if code, said = c.once(method, query, body); code != 0 && code < http.StatusInternalServerError {
			break
		}
		select {
		case <-time.After(pause):
		case <-c.t.Context().Done():
		}
		pause = min(2*pause, 5*time.Second)
	}
	if code != want {
		return said, fmt.Errorf("%s of %s: %d %s, want %d", method, c.id, code, said, want)
	}
	return said, nil
}

// must is ask for what the test cannot go on without.
func (c *client) must(want int, method, query, body string) string {
	c.t.Helper()
	said, err := c.ask(want, method, query, body)
	if err != nil {
		c.t.Fatal(err)
	}
	return said
}

// state is a state with this serial.
func state(serial int) string {
	return fmt.Sprintf("{\"version\":4,\"serial\":%d,\"lineage\":\"l\",\"resources\":%q}\n", serial, strings.Repeat("r", 1000+serial))
}

// start starts three servers on loopback.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, cluster.Options{Binary: binary})
	c.AwaitReplicas(cluster.Patience)
	return c
}

// at is a client of one server.
func at(t *testing.T, s *cluster.Server, id string) *client {
	return &client{t: t, url: "http://" + s.Member.Client + "/v1/terraform/net/prod", id: id}
}

// next is the server after s.
func next(c *cluster.Cluster, s *cluster.Server) *cluster.Server { return c.Server(s.Member.ID%3 + 1) }

// TestFailover kills the primary between LOCK and POST, and then with each POST, while it is under way. The lock is still held, and each state is kept once.
func TestFailover(t *testing.T) {
	c := start(t)
	primary := c.AwaitPrimary(cluster.Patience)
	x := at(t, next(c, primary), "mine")
	x.must(200, "LOCK", "", x.info())
	primary.Kill()
	x.must(200, "LOCK", "", x.info()) // as one whose answer was lost
	x.must(200, "POST", "?ID="+x.id, state(1))
	other := at(t, next(c, primary), "other")
	if said := other.must(423, "LOCK", "", other.info()); !strings.Contains(said, `"ID":"mine"`) {
		t.Errorf("who holds it: %s", said)
	}
	const rounds = 4
	for serial := 2; serial < 2+rounds; serial++ {
		primary.Start()
		c.AwaitReplicas(cluster.Patience)
		primary = c.AwaitPrimary(cluster.Patience)
		x.url = at(t, next(c, primary), "").url
		done := make(chan error, 1)
		go func() {
			_, err := x.ask(200, "POST", "?ID="+x.id, state(serial))
			done <- err
		}()
		primary.Kill()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		x.must(200, "POST", "?ID="+x.id, state(serial)) // as one whose answer was lost
		other.url = x.url
		other.must(409, "POST", "?ID="+other.id, state(serial+1))
		if got := x.must(200, "GET", "", ""); got != state(serial) {
			t.Errorf("the state after serial %d: %.80s", serial, got)
		}
	}
	x.must(200, "UNLOCK", "", x.info())
	x.must(200, "UNLOCK", "", x.info())
	x.must(409, "POST", "?ID="+x.id, state(99))
	var want bytes.Buffer
	for serial := 1; serial < 2+rounds; serial++ {
		want.WriteString(state(serial))
	}
	if got, err := os.ReadFile(c.File("terraform/net/prod.tfstate")); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the file has %d bytes, want each of %d states once, in %d bytes; %v", len(got), 1+rounds, want.Len(), err)
	}
}

// TestNewFile does what docs/terraform.md says to do with a file that has grown, as it is written there, and reads a version from before.
func TestNewFile(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	c := start(t)
	x := at(t, c.Server(1), "mine")
	x.must(200, "LOCK", "", x.info())
	x.must(200, "POST", "?ID="+x.id, state(1))
	x.must(200, "POST", "?ID="+x.id, state(2))
	x.must(200, "UNLOCK", "", x.info())
	page, err := os.ReadFile("../../docs/terraform.md")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := strings.Cut(string(page), "```sh\nurl=")
	recipe, _, found := strings.Cut(recipe, "```")
	if !found {
		t.Fatal("docs/terraform.md has no lines to begin a new file with")
	}
	old := t.TempDir()
	recipe = strings.NewReplacer(
		"localhost:7601", c.Server(2).Member.Client, "/mnt/share/holdfast", c.Dir(), "/mnt/share/old/", old, "TOKEN", `'"$token"'`, "curl -X LOCK $url", "said=$(curl -X LOCK $url",
		`"Who":"ann@h9"}'`, `"Who":"ann@h9"}'); token=$(echo "$said" | sed 's/.*"token":\([0-9]*\).*/\1/')`,
	).Replace("set -e; cd "+t.TempDir()+"\nurl="+recipe) + "\ncurl $url"
	recipe = strings.ReplaceAll(recipe, "curl ", "curl --fail-with-body --silent --show-error ")
	sh := exec.CommandContext(t.Context(), "sh", "-c", recipe)
	if out, err := sh.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), state(2)) {
		t.Errorf("%s\n%s: %v", recipe, out, err)
	}
	if got, err := os.ReadFile(filepath.Join(old, "prod.tfstate")); err != nil || string(got) != state(1)+state(2) {
		t.Errorf("what was moved away has %d bytes, %v", len(got), err)
	}
	if got, err := os.ReadFile(c.File("terraform/net/prod.tfstate")); err != nil || string(got) != state(2) {
		t.Errorf("the new file has %d bytes, %v", len(got), err)
	}
}

// tofu runs OpenTofu or Terraform in a directory of its own.
type tofu struct {
	t   *testing.T
	bin string
	dir string
}

// run returns what a command prints. No state is kept in the directory.
func (x *tofu) run(args ...string) (string, error) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, x.bin, args...)
	cmd.Dir = x.dir
	own := func(v string) bool { return strings.HasPrefix(v, "TF_") } // what the user of this machine has set
	cmd.Env = append(slices.DeleteFunc(os.Environ(), own), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_CLI_ARGS=-no-color")
	out, err := cmd.CombinedOutput()
	x.t.Logf("%s %s\n%s[%v]", x.bin, strings.Join(args, " "), out, err)
	return string(out), err
}

// configure writes a configuration whose state is at this address.
func (x *tofu) configure(url string) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, "main.tf"), fmt.Appendf(nil, `
terraform {
  backend "http" {
    address        = %q
    lock_address   = %[1]q
    unlock_address = %[1]q
    retry_max      = 10
  }
}

variable "n" {}

resource "terraform_data" "x" {
  input = var.n
}
`, url), 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// TestOpenTofu applies a configuration with the real program, over a failover, and while another one has the lock.
func TestOpenTofu(t *testing.T) {
	bin := ""
	for _, name := range []string{"tofu", "terraform"} {
		if found, err := exec.LookPath(name); err == nil {
			bin = found
			break
		}
	}
	if bin == "" {
		t.Skip("neither tofu nor terraform is installed: TestFailover asks as they do")
	}
	c := start(t)
	primary := c.AwaitPrimary(cluster.Patience)
	other := at(t, next(c, primary), "other")
	x := &tofu{t: t, bin: bin, dir: t.TempDir()}
	x.configure(other.url)
	apply := func(n string) (string, error) { return x.run("apply", "-auto-approve", "-input=false", "-var", "n="+n) }
	for _, step := range []func() (string, error){
		func() (string, error) { return x.run("init", "-input=false") },
		func() (string, error) { return apply("1") },
		func() (string, error) { primary.Kill(); return apply("2") },
	} {
		if out, err := step(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	var kept struct{ Serial int }
	if err := json.Unmarshal([]byte(other.must(200, "GET", "", "")), &kept); err != nil || kept.Serial < 2 {
		t.Errorf("serial %d, %v", kept.Serial, err)
	}
	other.must(200, "LOCK", "", other.info())
	if out, err := apply("3"); err == nil || !strings.Contains(out, other.id) {
		t.Errorf("apply under another's lock: %v", err)
	}
	if _, err := x.run("force-unlock", "-force", other.id); err == nil {
		t.Error("force-unlock, which does not say whose lock it means, succeeds")
	}
	if out, err := x.run("apply", "-auto-approve", "-input=false", "-lock=false", "-var", "n=3"); err == nil {
		t.Errorf("a state is written without the lock: %s", out)
	}
	if out, err := c.Run("break", "terraform/net/prod", "--reason", "a test"); err != nil {
		t.Errorf("break: %s: %v", out, err)
	}
	if _, err := apply("4"); err != nil {
		t.Error(err)
	}
	var lock wire.LockBody
	if err := json.Unmarshal([]byte((&client{t: t, url: strings.Replace(other.url, "/v1/terraform/", "/v1/locks/terraform/", 1)}).must(200, "GET", "", "")), &lock); err != nil || lock.Token != 0 {
		t.Errorf("who holds the lock in the end: %+v, %v", lock.Holder, err)
	}
}
