// SPDX-License-Identifier: Apache-2.0

package faulttests_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// newcomer types what holdfast init prints, and nothing that is copied by hand but the path of the volume.
type newcomer struct {
	t   *testing.T
	ctx context.Context
	bin string
	vol string
}

// types runs a line as a user: root is the one that the servers run as, any other one has no part in the volume.
func (n *newcomer) types(user uint32, line string) (string, error) {
	n.t.Helper()
	sh := exec.CommandContext(n.ctx, "sh", "-e", "-c", line)
	sh.Env = append(os.Environ(), "PATH="+n.bin+":"+os.Getenv("PATH"), "HOME=/nonexistent", "XDG_CONFIG_HOME=")
	if user != 0 {
		sh.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	out, err := sh.CombinedOutput()
	n.t.Logf("%d$ %s\n%s[%v]", user, line, out, err)
	return strings.TrimSpace(string(out)), err
}

// must is types for what has to succeed.
func (n *newcomer) must(user uint32, line string) string {
	n.t.Helper()
	out, err := n.types(user, line)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// until is must for what succeeds after a while.
func (n *newcomer) until(user uint32, line string) {
	n.t.Helper()
	cluster.Await(n.t, time.Minute, line, func() bool { _, err := n.types(user, line); return err == nil })
}

// serve starts a server until the test ends.
func (n *newcomer) serve(line string) {
	n.t.Helper()
	server := exec.Command("sh", "-c", "exec "+line)
	server.Env = append(os.Environ(), "PATH="+n.bin+":"+os.Getenv("PATH"))
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		server.Process.Kill() //nolint:errcheck // it has ended
		server.Wait()         //nolint:errcheck // it was killed
	})
}

// TestFromAnEmptyDirectory goes from an empty directory to three secure servers and the first lock of a second user, by
// the commands that holdfast init prints.
func TestFromAnEmptyDirectory(t *testing.T) {
	const other = 65534
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have a second user")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	top, err := os.MkdirTemp("", "holdfast-first-") // below t.TempDir, other users cannot look
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) }) //nolint:errcheck // a test's
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	n := &newcomer{t: t, ctx: ctx, bin: top, vol: filepath.Join(top, "volume")}
	if out, err := exec.Command("go", "build", "-o", n.bin, "../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	base := cluster.FreePorts(t)
	init := "holdfast init --volume " + n.vol
	for i := range 3 {
		init += fmt.Sprintf(" --server %d=127.0.0.1:%d", i+1, base+i)
	}
	said := n.must(0, init)
	printed := func(pattern string) []string {
		t.Helper()
		all := regexp.MustCompile(pattern).FindAllString(said, -1)
		if len(all) == 0 {
			t.Fatalf("init does not print %s:\n%s", pattern, said)
		}
		return all
	}
	for i, line := range printed(`holdfast server --id .*?  `) {
		n.serve(regexp.MustCompile(`--data-dir \S+`).ReplaceAllString(line, fmt.Sprintf("--data-dir %s/data-%d", top, i+1)))
	}
	endpoints := printed(`export HOLDFAST_ENDPOINTS=("[^"]*"|\S+)`)
	byPath, byPin := endpoints[0], endpoints[1]
	n.until(0, byPath+"; holdfast status")
	n.must(0, byPath+"; holdfast acquire first")
	if out, err := n.types(other, byPath+"; holdfast acquire second"); err == nil || !strings.Contains(out, "credential") {
		t.Errorf("a second user without a key: %v", err)
	}
	key := n.must(0, printed(`holdfast key create .*`)[0])
	useKey := strings.Replace(printed(`export HOLDFAST_KEY=\S+`)[0], "hfk_...", key, 1)
	n.until(other, byPath+"; "+useKey+"; holdfast whoami") // the servers know a new key within a second
	for _, line := range []string{byPath, byPin} {
		if token := n.must(other, line+"; "+useKey+"; holdfast acquire second/$(date +%N) --wait 5s"); !regexp.MustCompile(`^\d+$`).MatchString(token) {
			t.Errorf("the second user's token is %q", token)
		}
	}
	for _, secret := range []string{"secrets/ca.key", "access/0000000001.toml"} {
		if _, err := n.types(other, "cat "+filepath.Join(n.vol, secret)); err == nil {
			t.Errorf("a second user reads %s", secret)
		}
	}
}
