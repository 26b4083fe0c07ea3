// SPDX-License-Identifier: Apache-2.0

// Package recovery_test damages, restores and loses volumes of real servers and
// types what docs/recovery.md says, as it stands there.
package recovery_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/replica"
	"github.com/holdfast-lock/holdfast/shared/volume/fsck"
)

// patience bounds every wait for servers.
const patience = 20 * time.Second

// site is a volume with its servers and their data directories.
type site struct {
	t       *testing.T
	bin     string
	volume  string
	data    []string
	hosts   []string
	log     string
	doc     string // the page of docs/ whose commands are typed
	servers []*exec.Cmd
}

func newSite(t *testing.T) *site {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	s := &site{t: t, bin: t.TempDir(), volume: filepath.Join(t.TempDir(), "volume"), log: filepath.Join(t.TempDir(), "log"), doc: "recovery.md"}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(s.bin, "holdfast"), "../../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	base := cluster.FreePorts(t)
	for i := range 3 {
		s.hosts = append(s.hosts, fmt.Sprintf("127.0.0.1:%d", base+i))
		s.data = append(s.data, t.TempDir())
	}
	t.Cleanup(s.stop)
	s.must("init", "--volume", s.volume, "--server", "1="+s.hosts[0], "--server", "2="+s.hosts[1], "--server", "3="+s.hosts[2])
	return s
}

// holdfast runs a command and returns its output and exit code.
func (s *site) holdfast(args ...string) (string, int) {
	cmd := exec.Command(filepath.Join(s.bin, "holdfast"), args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_ENDPOINTS="+s.volume)
	out, _ := cmd.Output() // the code says it
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

func (s *site) must(args ...string) string {
	s.t.Helper()
	out, code := s.holdfast(args...)
	if code != 0 {
		s.t.Fatalf("holdfast %s: code %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// start runs all servers and waits until one serves.
func (s *site) start() {
	s.t.Helper()
	s.launch()
	deadline := time.Now().Add(patience)
	for {
		if _, code := s.holdfast("acquire", "probe", "--ttl", "1s", "--timeout", "2s", "--wait", "3s"); code == 0 {
			return
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(s.log)
			s.t.Fatalf("nobody serves:\n%s", b[max(0, len(b)-4000):])
		}
	}
}

// refuses runs all servers and wants them to say why none of them serves.
func (s *site) refuses(why string) {
	s.t.Helper()
	s.launch()
	defer s.stop()
	for deadline := time.Now().Add(patience); ; {
		if _, code := s.holdfast("acquire", "probe", "--ttl", "1s", "--timeout", "1s"); code == 0 {
			s.t.Fatal("a server serves")
		}
		b, err := os.ReadFile(s.log)
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.Contains(string(b), why) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("nobody says %q:\n%s", why, b[max(0, len(b)-4000):])
		}
	}
}

func (s *site) launch() {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	for i := range 3 {
		cmd := exec.Command(filepath.Join(s.bin, "holdfast"), "server", "--id", strconv.Itoa(i+1), "--volume", s.volume, "--data-dir", s.data[i])
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
		s.servers = append(s.servers, cmd)
	}
}

// stop tells all servers to end, and waits.
func (s *site) stop() {
	for _, c := range s.servers {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, c := range s.servers {
		_ = c.Wait() // how does not matter
	}
	s.servers = nil
}

// settled waits until both replicas have what the primary has: they are fed behind its answers.
func (s *site) settled() {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		out, _ := s.holdfast("status", "-o", "json")
		var r struct {
			Servers []struct{ LSN uint64 }
		}
		if err := json.Unmarshal([]byte(out), &r); err == nil && len(r.Servers) == 3 &&
			r.Servers[0].LSN > 0 && r.Servers[0].LSN == r.Servers[1].LSN && r.Servers[0].LSN == r.Servers[2].LSN {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the replicas are not where the primary is: %s", out)
		}
	}
}

// typed runs a block of the page as it stands and returns its exit code.
func (s *site) typed(name string, env ...string) int {
	s.t.Helper()
	b, err := os.ReadFile("../../docs/" + s.doc)
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "<!-- tested: "+name+" -->\n```sh\n")
	script, _, found := strings.Cut(rest, "```")
	if !ok || !found {
		s.t.Fatalf("%s has no block %q", s.doc, name)
	}
	cmd := exec.Command("sh", "-e", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "VOLUME="+s.volume,
		"DATA1="+s.data[0], "DATA2="+s.data[1], "DATA3="+s.data[2], "HOST1="+s.hosts[0], "HOST2="+s.hosts[1], "HOST3="+s.hosts[2])
	cmd.Env = append(cmd.Env, env...)
	out, _ := cmd.CombinedOutput() // the code says it
	s.t.Logf("%s:\n%s[%d]", name, out, cmd.ProcessState.ExitCode())
	return cmd.ProcessState.ExitCode()
}

// worked fails the test unless a block ends well.
func (s *site) worked(name string, env ...string) {
	s.t.Helper()
	if code := s.typed(name, env...); code != 0 {
		s.t.Fatalf("%s: code %d", name, code)
	}
}

// token acquires a lock.
func (s *site) token(lock string) uint64 {
	s.t.Helper()
	n, err := strconv.ParseUint(s.must("acquire", lock, "--ttl", "1m"), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) append(lock, file, text string) int {
	cmd := exec.Command("sh", "-c", fmt.Sprintf("echo %s | %s/holdfast append %s %s --endpoints %s --ttl 2s --wait 5s", text, s.bin, lock, file, s.volume))
	out, _ := cmd.CombinedOutput() // the code says it
	s.t.Logf("append: %s", out)
	return cmd.ProcessState.ExitCode()
}

func (s *site) file(name, want string) {
	s.t.Helper()
	if b, err := os.ReadFile(filepath.Join(s.volume, "files", name)); err != nil || string(b) != want {
		s.t.Errorf("%s holds %q (%v), want %q", name, b, err, want)
	}
}

// dead wants an old token to be refused and a new one to be above it.
func (s *site) dead(lock string, old uint64) {
	s.t.Helper()
	if out, code := s.holdfast("renew", lock, "--token", fmt.Sprint(old)); code != 3 {
		s.t.Errorf("renew under an old token: code %d: %s", code, out)
	}
	if fresh := s.token("fresh"); fresh <= old || fresh < 1<<32 {
		s.t.Errorf("token %d after %d", fresh, old)
	}
}

func TestRestoredBackup(t *testing.T) {
	s := newSite(t)
	s.start()
	held := s.token("held")
	s.append("text", "f", "one")
	s.stop()
	backup := filepath.Join(t.TempDir(), "backup")
	if out, err := exec.Command("cp", "-a", s.volume, backup).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.start()
	later := s.token("later")
	s.stop()
	if err := os.RemoveAll(s.volume); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, s.volume); err != nil {
		t.Fatal(err)
	}
	s.refuses("the volume is older than what this server knows")
	if code := s.typed("plan"); code != 0 {
		t.Errorf("a backup is whole, but the plan ends with %d", code)
	}
	s.worked("restored")
	s.start()
	s.dead("held", held)
	if out, code := s.holdfast("release", "later", "--token", fmt.Sprint(later)); code != 3 {
		t.Errorf("release under a token that the backup does not know: code %d: %s", code, out)
	}
	if code := s.append("text", "f", "two"); code != 0 {
		t.Errorf("append: %d", code)
	}
	s.file("f", "one\ntwo\n")
	s.worked("look") // beside servers
	s.stop()
	s.worked("look")
}

func TestLostVolume(t *testing.T) {
	s := newSite(t)
	s.start()
	held := s.token("held")
	s.append("text", "f", "one")
	s.settled()
	s.stop()
	best := uint64(0)
	for i, dir := range s.data {
		k, err := replica.ReadKnown(dir)
		if err != nil || k.LSN > 0 && k.Epoch == 0 {
			t.Errorf("server %d knows %+v, %v", i+1, k, err)
		}
		best = max(best, uint64(k.LSN))
	}
	if best < held {
		t.Errorf("token %d was given, and no server knows of more than LSN %d", held, best)
	}
	saved := s.volume
	s.volume = filepath.Join(t.TempDir(), "new")
	s.worked("lost", "NEW="+s.volume, "SAVED="+saved)
	s.start()
	s.dead("held", held)
	if code := s.append("text", "f", "two"); code != 0 {
		t.Errorf("append: %d", code)
	}
	s.file("f", "one\ntwo\n")
	s.stop()
	s.worked("look")
}

// TestDamagedVolume tears START: no server is primary, and nothing is lost.
func TestDamagedVolume(t *testing.T) {
	s := newSite(t)
	s.start()
	held := s.token("held")
	s.stop()
	out, code := s.holdfast("fsck", "--volume", s.volume, "-o", "json")
	var r fsck.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("fsck: %d %v %s", code, err, out)
	}
	f, err := os.OpenFile(filepath.Join(s.volume, "epochs", fmt.Sprintf("%010d", uint64(r.Epoch)), "fence"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("torn"), 64<<10+100); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.typed("look"); code != 1 {
		t.Errorf("fsck ends with %d", code)
	}
	if code := s.typed("plan"); code != 6 {
		t.Errorf("the plan ends with %d", code)
	}
	s.worked("damaged")
	s.start()
	s.must("renew", "held", "--token", fmt.Sprint(held)) // nothing was lost
	if code := s.typed("plan"); code != 5 {
		t.Errorf("beside servers the plan ends with %d", code)
	}
	s.stop()
	s.worked("look")
}

// TestDamagedLog loses a part of the log: nobody agrees to that by typing the first box.
func TestDamagedLog(t *testing.T) {
	s := newSite(t)
	s.start()
	held := s.token("held")
	s.stop()
	var r fsck.Report
	if out, code := s.holdfast("fsck", "--volume", s.volume, "-o", "json"); json.Unmarshal([]byte(out), &r) != nil || code != 0 {
		t.Fatalf("fsck: %d %s", code, out)
	}
	// The header of the second frame, with frames behind it.
	logs, err := filepath.Glob(filepath.Join(s.volume, "epochs", fmt.Sprintf("%010d", uint64(r.Epoch)), "wal-0*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v %v", logs, err)
	}
	f, err := os.OpenFile(logs[len(logs)-1], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("torn"), 2*4096+40); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.refuses(": corrupt")
	if code := s.typed("damaged"); code != 6 {
		t.Fatalf("what may lose something ends with %d", code)
	}
	s.worked("damaged with loss")
	s.start()
	s.dead("held", held)
	s.stop()
	s.worked("look")
}
