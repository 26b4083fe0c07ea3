// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// siteWorld is a site of two cells, with three hosts that are all this one: a supervisor for each ID.
type siteWorld struct {
	*world
	base, metrics int
	supervisors   map[uint32]*exec.Cmd
	logs          map[uint32]*logs
	env           []string // further variables of supervisors
}

const siteHosts = 3

func startSite(t *testing.T, flags ...string) *siteWorld {
	t.Helper()
	w := &siteWorld{world: &world{t: t, dir: filepath.Join(t.TempDir(), "site")}, supervisors: map[uint32]*exec.Cmd{}, logs: map[uint32]*logs{}}
	w.base, w.metrics = freeOfSite(t)
	args := append([]string{"site", "init", "--cells", "2", w.dir}, flags...)
	for id := range uint32(siteHosts) {
		args = append(args, "--server", fmt.Sprintf("%d=127.0.0.1:%d", id+1, w.base+10*int(id)))
	}
	out := w.do("", args...)
	for id := uint32(1); id <= siteHosts; id++ {
		if want := fmt.Sprintf("holdfast server --id %d --site %s ", id, w.dir); strings.Count(out, want) != 1 {
			t.Errorf("init does not say once: %s", want)
		}
		w.supervise(id)
	}
	return w
}

// supervise starts the supervisor of a host.
func (w *siteWorld) supervise(id uint32) {
	w.t.Helper()
	cmd, said := exec.Command(os.Getenv(binaryEnv), "server", "--id", fmt.Sprint(id), "--site", w.dir), &logs{}
	cmd.Args = append(cmd.Args, "--data-dir", fmt.Sprintf("%s.data/%d", w.dir, id), "--metrics-listen", fmt.Sprintf("127.0.0.1:%d", w.metrics+10*int(id-1)))
	cmd.Env = append(os.Environ(), w.env...)
	if cmd.Stderr = said; id == 1 { // by a file, as it is the usual
		file := filepath.Join(w.t.TempDir(), "1.toml")
		text := fmt.Sprintf("id = 1\nsite = %q\ndata-dir = %q\nmetrics-listen = \"127.0.0.1:%d\"\n", w.dir, w.dir+".data/1", w.metrics)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
		cmd.Args = []string{cmd.Args[0], "server"}
		cmd.Env = append(cmd.Env, "HOLDFAST_SERVER_CONFIG="+file)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.supervisors[id], w.logs[id] = cmd, said
	w.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		cmd.Wait()                          //nolint:errcheck // as it was told
		if w.t.Failed() {
			w.t.Logf("supervisor %d said:\n%s", id, said)
		}
	})
}

// freeOfSite finds ports for a site, for metrics, and for gateways.
func freeOfSite(t *testing.T) (base, metrics int) {
	t.Helper()
	for range 100 {
		base = 20000 + rand.IntN(10000)
		var ports []int
		for _, offset := range []int{0, 200, 100} {
			for id := range siteHosts {
				ports = append(ports, base+offset+10*id, base+offset+10*id+1)
			}
		}
		for _, gateway := range []int{300, 309} { // and one for the other cell
			ports = append(ports, base+gateway, base+gateway+1)
		}
		if free(ports...) {
			return base, base + 100
		}
	}
	t.Fatal("no free ports")
	return 0, 0
}

func (w *siteWorld) client(id uint32, cell int) string {
	return fmt.Sprintf("127.0.0.1:%d", w.base+10*int(id-1)+cell)
}

// ask asks a server for its status, as a stranger.
func (w *siteWorld) ask(id uint32, cell int, local bool) *pb.StatusResponse {
	w.t.Helper()
	_, trust, err := join.Resolve([]string{filepath.Join(w.dir, "cells", fmt.Sprint(cell))})
	if err != nil {
		w.t.Fatal(err)
	}
	dial := trust.Dialer(join.GRPC, func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	})
	conn, err := grpc.NewClient("passthrough:///"+w.client(id, cell), grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	r, err := pb.NewLockServiceClient(conn).Status(ctx, &pb.StatusRequest{Local: local})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// of has the commands ask the servers of a cell.
func (w *siteWorld) of(cell int) *world {
	w.endpoints = filepath.Join(w.dir, "cells", fmt.Sprint(cell))
	return w.world
}

// child returns the process that serves a cell for a server.
func (w *siteWorld) child(id uint32, cell int) (pid int) {
	w.t.Helper()
	for _, s := range w.of(cell).status().Servers {
		if s.ID == id {
			return s.PID
		}
	}
	return 0
}

// TestSiteIsServed by a command on each host, and each of its servers names those of all cells. A server that is killed comes back, and the other
// cell does not notice. SIGTERM ends all.
func TestSiteIsServed(t *testing.T) {
	w := startSite(t)
	epochs := map[int]uint64{}
	for cell := range 2 {
		w.of(cell).primary(0)
		await(t, "a healthy cell", func() bool { return w.try("", "status").code == 0 })
		epochs[cell] = w.status().Epoch
	}
	w.namesAllCells()
	w.restartsWhatIsKilled(epochs)
	w.metricsOfBoth()

	if r := w.try("", "server", "--id", "1", "--volume", filepath.Join(w.dir, "cells/1"), "--data-dir", "none"); r.code != 5 || !strings.Contains(r.errs, "start it with --site "+w.dir+" --cell 1") {
		t.Errorf("a cell by itself: %+v", r)
	}
	if out := w.do("", "config", "reload", "--id", "2", "--site", w.dir, "--data-dir", w.dir+".data/2"); !strings.Contains(out, "changed: nothing") {
		t.Errorf("reload: %s", out)
	}
	primary, pid := w.of(0).primary(0)
	s := w.supervisors[primary]
	w.signal(s, syscall.SIGTERM)
	syscall.Kill(pid, syscall.SIGTERM) //nolint:errcheck // as a service manager, which signals all: it hands over all the same
	if err := s.Wait(); err != nil {
		t.Errorf("supervisor %d: %v", primary, err)
	}
	if said := w.logs[primary].String(); strings.Count(said, "handed over") == 0 || strings.Count(said, `"message":"ended"`) != 3 {
		t.Errorf("supervisor %d does not say that it handed over, and that both cells ended", primary)
	}
	for cell := range 2 {
		w.of(cell).primary(primary)
	}
}

// namesAllCells wants each server to say where both cells are served, to strangers, too.
func (w *siteWorld) namesAllCells() {
	w.t.Helper()
	for id := uint32(1); id <= siteHosts; id++ {
		for cell := range 2 {
			for _, local := range []bool{true, false} {
				r := w.ask(id, cell, local)
				var got []string
				for _, c := range r.GetCells() {
					got = append(got, fmt.Sprintf("%d=%s", c.GetCell(), strings.Join(c.GetClients(), ",")))
				}
				want := ""
				for k := range 2 {
					want += fmt.Sprintf("%d=%s,%s,%s ", k, w.client(1, k), w.client(2, k), w.client(3, k))
				}
				if strings.Join(got, " ")+" " != want || r.GetMessage() == "" {
					w.t.Errorf("server %d of cell %d tells a stranger %v (%s), want %s", id, cell, got, r.GetMessage(), want)
				}
			}
		}
	}
	var body struct {
		Cells []struct {
			Cell    uint32   `json:"cell"`
			Clients []string `json:"clients"`
		} `json:"cells"`
	}
	if err := json.Unmarshal([]byte(w.of(0).try("", "status", "-o", "json").out), &body); err != nil || len(body.Cells) != 2 || len(body.Cells[1].Clients) != siteHosts {
		w.t.Errorf("status has %+v, %v", body, err)
	}
}

// restartsWhatIsKilled kills the primary of cell 1.
func (w *siteWorld) restartsWhatIsKilled(epochs map[int]uint64) {
	w.t.Helper()
	id, pid := w.of(1).primary(0)
	other := w.child(id, 0)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	w.of(1).primary(id)
	await(w.t, "the killed server", func() bool { now := w.child(id, 1); return now != 0 && now != pid })
	if now, epoch := w.child(id, 0), w.status().Epoch; now != other || epoch != epochs[0] {
		w.t.Errorf("the server of cell 0 was process %d in epoch %d, and is %d in epoch %d", other, epochs[0], now, epoch)
	}
	await(w.t, "a healthy cell 1", func() bool { return w.of(1).try("", "status").code == 0 })
	if said := w.logs[id].String(); !strings.Contains(said, `"cell":1,"end":"signal: killed","pause":250`) {
		w.t.Errorf("supervisor %d does not say which server it starts again", id)
	}
}

// metricsOfBoth wants each cell of server 1 to have a port for metrics.
func (w *siteWorld) metricsOfBoth() {
	w.t.Helper()
	for cell := range 2 {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/livez", w.metrics+cell))
		if err != nil {
			w.t.Errorf("cell %d: %v", cell, err)
			continue
		}
		b, _ := io.ReadAll(r.Body) //nolint:errcheck // for people
		r.Body.Close()             //nolint:errcheck // it was read
		if r.StatusCode != http.StatusOK {
			w.t.Errorf("cell %d: %s", cell, b)
		}
	}
}

func (w *siteWorld) signal(cmd *exec.Cmd, sig os.Signal) {
	w.t.Helper()
	if err := cmd.Process.Signal(sig); err != nil {
		w.t.Fatal(err)
	}
}

// TestServiceManagerHearsTheSupervisor, when both cells are ready, then as often as its watchdog wants it, and at the end; and none of the servers.
// At SIGHUP both read their settings anew.
func TestServiceManagerHearsTheSupervisor(t *testing.T) {
	w := startSite(t, "--plain")
	w.signal(w.supervisors[1], syscall.SIGTERM)
	w.supervisors[1].Wait() //nolint:errcheck // it is started again
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close() //nolint:errcheck // nobody writes there
	w.env = []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=600000", "WATCHDOG_PID="}
	w.supervise(1)
	told := func() string {
		manager.SetReadDeadline(time.Now().Add(30 * time.Second)) //nolint:errcheck // Read would say so
		b := make([]byte, 4096)
		n, err := manager.Read(b)
		if err != nil {
			t.Error(err)
		}
		return string(b[:n])
	}
	equal(t, "the first word", told(), "READY=1")
	if said := w.logs[1].String(); strings.Count(said, `"server starts"`) != 2 || strings.Contains(said, "these cells are late") {
		t.Error("it was ready before both cells were")
	}
	for range 10 {
		equal(t, "then", told(), "WATCHDOG=1")
	}
	w.signal(w.supervisors[1], syscall.SIGHUP)
	await(t, "a reload of both cells", func() bool { return strings.Count(w.logs[1].String(), "the configuration was read anew") == 2 })
	w.signal(w.supervisors[1], syscall.SIGTERM)
	last := "WATCHDOG=1"
	for last == "WATCHDOG=1" {
		last = told()
	}
	equal(t, "the last word", last, "STOPPING=1")
	if err := w.supervisors[1].Wait(); err != nil || strings.Contains(w.logs[1].String(), "is stuck") {
		t.Errorf("the supervisor ended with %v", err)
	}
}

// TestRemovedHostEnds: a host whose server was removed from all cells has nothing to do any more; from one of them, it serves the other.
func TestRemovedHostEnds(t *testing.T) {
	w := startSite(t, "--plain")
	ended := make(chan error, 1)
	go func() { ended <- w.supervisors[3].Wait() }()
	for cell := range 2 {
		w.of(cell).primary(0)
		await(t, "a healthy cell", func() bool { return w.try("", "status").code == 0 })
		select {
		case err := <-ended:
			t.Fatalf("supervisor 3 has ended: %v", err)
		default:
		}
		w.do("", "member", "remove", "3")
	}
	<-ended
	if code := w.supervisors[3].ProcessState.ExitCode(); code != 78 {
		t.Errorf("supervisor 3 ends with code %d", code)
	}
}

// TestKilledSupervisorLeavesNothing: its servers hand over and end.
func TestKilledSupervisorLeavesNothing(t *testing.T) {
	w := startSite(t, "--plain")
	var pids []int
	for cell := range 2 {
		w.of(cell).primary(0)
		await(t, "the server", func() bool { return w.child(1, cell) != 0 })
		pids = append(pids, w.child(1, cell))
	}
	w.signal(w.supervisors[1], syscall.SIGKILL)
	for _, pid := range pids {
		await(t, fmt.Sprintf("the end of process %d", pid), devServer{PID: pid}.ended)
	}
}

// TestSiteIsUsedAsOneVolume by commands and programs, whichever cell they are told of, and whatever proves who the servers are.
func TestSiteIsUsedAsOneVolume(t *testing.T) {
	for _, secure := range []bool{true, false} {
		flags := []string{"--pin", "a/=0", "--pin", "b/=1"}
		if !secure {
			flags = append(flags, "--plain")
		}
		w := startSite(t, flags...)
		for cell := range 2 {
			w.of(cell).primary(0)
			await(t, "a healthy cell", func() bool { return w.try("", "status").code == 0 })
		}
		all := []string{w.dir, filepath.Join(w.dir, "cells/1")} // whoever may log in by them is somebody in both cells
		if !secure {
			all = []string{w.client(1, 0) + "," + w.client(2, 0)}
		}
		for i, endpoints := range all {
			w.endpoints = endpoints
			w.commandsInBothCells(i)
		}
		w.throughGateway(secure)
		if !secure {
			w.overHTTP()
			w.stateOverHTTP()
			w.hungCell()
			w.lostCell()
		}
	}
}

// commandsInBothCells uses names of both cells.
func (w *siteWorld) commandsInBothCells(round int) {
	w.t.Helper()
	for _, cell := range []string{"a", "b"} {
		lock, file := fmt.Sprintf("%s/l%d", cell, round), fmt.Sprintf("%s/f%d", cell, round)
		token := strings.TrimSpace(w.do("", "acquire", lock, "--ttl", "1m"))
		w.do("x", "append", lock, file, "--token", token)
		if out := w.do("", "cat", file); out != "x" {
			w.t.Errorf("%s has %q", file, out)
		}
		if out := w.do("", "show", lock); !strings.Contains(out, file) {
			w.t.Errorf("show %s: %s", lock, out)
		}
		if out := w.do("", "why", lock); !strings.Contains(out, "token "+token) {
			w.t.Errorf("why %s: %s", lock, out)
		}
		if out := w.do("", "watch", lock, "--count", "1", "--after", token); !strings.Contains(out, lock) {
			w.t.Errorf("watch %s: %s", lock, out)
		}
		w.do("", "release", lock, "--token", token)
		if out := w.do("", "history", lock); !strings.Contains(out, "released") {
			w.t.Errorf("history %s: %s", lock, out)
		}
		w.do("", "run", lock, "--", "true")
		if out := w.do("", "outcome", "nobody", "1", "--lock", lock); !strings.Contains(out, "not_seen") {
			w.t.Errorf("outcome: %s", out)
		}
	}
	for _, ls := range [][]string{{"ls"}, {"file", "ls"}} {
		out := w.do("", ls...)
		if a, b := strings.Index(out, fmt.Sprintf("a/f%d", round)), strings.Index(out, fmt.Sprintf("b/f%d", round)); ls[0] == "file" && (a < 0 || b < a) {
			w.t.Errorf("%v: %s", ls, out)
		}
		if !strings.Contains(out, fmt.Sprintf("a/l%d", round)) || !strings.Contains(out, fmt.Sprintf("b/l%d", round)) {
			w.t.Errorf("%v: %s", ls, out)
		}
	}
	if r := w.try("x", "append", "a/l", "b/f", "--wait", "1s"); r.code == 0 || !strings.Contains(r.errs, "a file is in the cell of its lock") {
		w.t.Errorf("a file of another cell than its lock: %+v", r)
	}
}

// throughGateway uses names of both cells with gateways as endpoints only, which were told of one cell, of the other one, or of the directory of the site.
func (w *siteWorld) throughGateway(secure bool) {
	w.t.Helper()
	sites := []string{w.client(1, 0) + "," + w.client(2, 0), w.client(3, 1)}
	if secure {
		sites = []string{w.dir}
	}
	for named, site := range sites { // the cell
		port := w.base + 300 + 10*named
		at := fmt.Sprintf("127.0.0.1:%d", port)
		cmd, said := exec.Command(os.Getenv(binaryEnv), "gateway", "--site", site, "--listen", at), &logs{}
		cmd.Stderr = said
		if err := cmd.Start(); err != nil {
			w.t.Fatal(err)
		}
		await(w.t, "the gateway to pass on both cells", func() bool {
			return strings.Count(said.String(), "connections go to another server") >= 2
		})
		if w.endpoints = at; secure {
			_, rest, _ := strings.Cut(strings.TrimSpace(w.do("", "join", "--volume", filepath.Join(w.dir, "cells/0"))), "?")
			w.endpoints = "holdfast://" + at + "/?" + rest
			w.refusedInBothCells()
		} else {
			w.commandsInBothCells(10 + named)
			w.overHTTPThrough(named, port)
		}
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait says it
		if err := cmd.Wait(); err != nil || w.t.Failed() {
			w.t.Errorf("the gateway of %s ended with %v:\n%s", site, err, said)
		}
	}
}

// refusedInBothCells asks as nobody: the right cell knows that it may not answer.
func (w *siteWorld) refusedInBothCells() {
	w.t.Helper()
	for cell, lock := range []string{"a/l0", "b/l0"} {
		if r := w.try("", "show", lock); r.code != 5 || !strings.Contains(r.errs, "does not allow to read \""+lock) {
			w.t.Errorf("show %s of cell %d as nobody: %+v", lock, cell, r)
		}
	}
}

// overHTTPThrough asks a gateway for a name of the cell that it does not lead to at this port.
func (w *siteWorld) overHTTPThrough(named, port int) {
	w.t.Helper()
	lock, other := "b/through", port+1
	if named == 1 {
		lock, other = "a/through", port-1
	}
	at, want := fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d/v1/locks/%s", other, lock)
	if x := w.httpTo(at, "GET", "/v1/locks/"+lock, "", false); x.code != http.StatusTemporaryRedirect || x.location != want {
		w.t.Errorf("GET of a lock of the other cell through a gateway: %+v, want a way to %s", x, want)
	}
	if x := w.httpTo(at, "GET", "/v1/locks/"+lock, "", true); x.code != http.StatusOK {
		w.t.Errorf("GET of a lock of the other cell through a gateway: %+v", x)
	}
}

// overHTTP asks servers of cell 0 for names of cell 1, as a client that follows redirects, which needs to know of no cells.
func (w *siteWorld) overHTTP() {
	w.t.Helper()
	for id := uint32(1); id <= siteHosts; id++ { // replicas lead as their primary does
		lock, file := fmt.Sprintf("b/web%d", id), fmt.Sprintf("b/page%d", id)
		x := w.http(id, "POST", "/v1/acquire", fmt.Sprintf(`{"lock":%q,"ttl":"1m"}`, lock), true)
		var got struct{ Token uint64 }
		if err := json.Unmarshal([]byte(x.body), &got); err != nil || x.code != http.StatusOK || got.Token == 0 {
			w.t.Errorf("acquire over HTTP: %+v", x)
		}
		append := fmt.Sprintf("/v1/append?lock=%s&file=%s&token=%d", lock, file, got.Token)
		for _, q := range []struct{ method, path, body, want string }{
			{"POST", append, "x", `"crc32c"`},
			{"POST", "/v1/renew", fmt.Sprintf(`{"lock":%q,"token":%d}`, lock, got.Token), `"ttl"`},
			{"POST", "/v1/verify", fmt.Sprintf(`{"lock":%q,"token":%d}`, lock, got.Token), `"ttl"`},
			{"GET", "/v1/files/" + file, "", "x"},
			{"GET", "/v1/files/" + file + "?follow=true", "", ""},
			{"GET", "/v1/blame/" + file, "", `"pieces"`},
			{"GET", "/v1/locks/" + lock, "", lock},
			{"GET", "/v1/why/" + lock, "", lock},
			{"GET", "/v1/history?lock=" + lock, "", lock},
			{"GET", "/v1/watch?lock=" + lock, "", ""},
		} {
			told := w.http(id, q.method, q.path, q.body, false)
			if there := "http://" + w.client(1, 1) + q.path; told.code != http.StatusTemporaryRedirect || told.location != there || !strings.Contains(told.body, "belongs to cell 1") {
				w.t.Errorf("server %d: %s %s: %+v, want a way to %s", id, q.method, q.path, told, there)
			}
			if q.want == "" {
				continue // it does not end
			}
			var x answerOverHTTP
			await(w.t, fmt.Sprintf("server %d: %s %s", id, q.method, q.path), func() bool { // the server there may be a replica, whose reads have an age
				x = w.http(id, q.method, q.path, q.body, true)
				return x.code == http.StatusOK && strings.Contains(x.body, q.want) || q.method == "POST"
			})
			if x.code != http.StatusOK || !strings.Contains(x.body, q.want) {
				w.t.Errorf("server %d: %s %s: %+v", id, q.method, q.path, x)
			}
		}
	}
	parted := "/v1/append?lock=a/l&file=b/f&token=1"
	for what, x := range map[string]answerOverHTTP{
		"names that no cell has both":   w.http(1, "POST", parted, "x", false),
		"a page of a browser":           w.http(1, "GET", "/v1/locks/b/l", "", false, "Origin", "http://"+w.client(1, 0)),
		"a script of the own page":      w.http(1, "GET", "/v1/locks/b/l", "", false, "Sec-Fetch-Mode", "cors"),
		"what another server passes on": w.http(1, "GET", "/v1/locks/b/l", "", false, "Holdfast-Forwarded-By", "2"),
	} {
		if x.code != http.StatusMisdirectedRequest || x.location != "" {
			w.t.Errorf("%s: %+v", what, x)
		}
	}
	if x := w.http(1, "GET", "/v1/watch?lock=b/l", "", false, "Origin", "http://"+w.client(1, 0)); !strings.Contains(x.body, `"cell":1`) {
		w.t.Errorf("a watch of a page: %+v", x)
	}
	if x := w.http(1, "GET", "/v1/locks/a/l", "", false); x.code != http.StatusOK {
		w.t.Errorf("a lock of this cell: %+v", x)
	}
}

// stateOverHTTP locks, writes and reads a state of Terraform at servers of both cells, and wants one that could not be written refused before it is locked.
func (w *siteWorld) stateOverHTTP() {
	w.t.Helper()
	const path, id = "/v1/terraform/%7Bnet%7D", "8f4d6c2e-0000-4000-8000-000000000001"
	info := fmt.Sprintf(`{"ID":%q,"Operation":"apply"}`, id)
	led := 0
	for _, q := range []struct{ method, path, body string }{
		{"LOCK", path, info}, {"POST", path + "?ID=" + id, `{"version":4,"serial":1,"lineage":"l"}`}, {"GET", path, ""}, {"UNLOCK", path, info},
	} {
		for cell := range 2 {
			x := w.httpTo(w.client(1, cell), q.method, q.path, q.body, false)
			if x.code == http.StatusTemporaryRedirect {
				led++
				x = w.httpTo(w.client(1, cell), q.method, q.path, q.body, true)
			}
			if x.code != http.StatusOK || q.method == "GET" && !strings.Contains(x.body, `"version":4`) {
				w.t.Errorf("%s %s at cell %d: %+v", q.method, q.path, cell, x)
			}
		}
	}
	if led != 4 {
		w.t.Errorf("%d of 8 requests were led to the other cell, want 4", led)
	}
	refused := 0
	for i := range 16 {
		x := w.http(1, "LOCK", fmt.Sprintf("/v1/terraform/net%d", i), fmt.Sprintf(`{"ID":"%s%d","Operation":"apply"}`, id, i), true)
		if x.code == http.StatusBadRequest && strings.Contains(x.body, "put a part of its name in braces") {
			refused++
		} else if x.code != http.StatusOK {
			w.t.Errorf("LOCK of net%d: %+v", i, x)
		}
	}
	if refused == 0 || refused == 16 { // by the hashes of these names
		w.t.Errorf("%d of 16 states are refused", refused)
	}
}

type answerOverHTTP struct {
	code           int
	location, body string
}

// http asks a server of cell 0.
func (w *siteWorld) http(id uint32, method, path, body string, follow bool, header ...string) answerOverHTTP {
	w.t.Helper()
	return w.httpTo(w.client(id, 0), method, path, body, follow, header...)
}

func (w *siteWorld) httpTo(addr, method, path, body string, follow bool, header ...string) answerOverHTTP {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	c := http.Client{Timeout: 30 * time.Second}
	if !follow {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	resp, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return answerOverHTTP{resp.StatusCode, resp.Header.Get("Location"), string(b)}
}

// hungCell has the volume of cell 0 hang for clients, as a pipe does to which nobody writes.
func (w *siteWorld) hungCell() {
	w.t.Helper()
	file := filepath.Join(w.dir, "cells/0/CLUSTER")
	if err := errors.Join(os.Rename(file, file+".was"), syscall.Mkfifo(file, 0o644)); err != nil {
		w.t.Fatal(err)
	}
	for _, endpoint := range []string{w.dir, filepath.Join(w.dir, "cells/1")} {
		w.endpoints = endpoint
		w.do("", "run", "b/l", "--", "true")
		w.do("", "show", "b/l")
	}
	if r := w.try("", "ls"); r.code == 0 || !strings.Contains(r.errs, "incomplete: cell 0") || !strings.Contains(r.out, "b/l0") {
		w.t.Errorf("while the volume of cell 0 hangs: %+v", r)
	}
	if err := os.Rename(file+".was", file); err != nil {
		w.t.Fatal(err)
	}
}

// lostCell ends all servers of cell 1: the others are used, and listed, all the same.
func (w *siteWorld) lostCell() {
	w.t.Helper()
	for id := uint32(1); id <= siteHosts; id++ {
		if pid := w.child(id, 1); pid != 0 {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				w.t.Fatal(err)
			}
			defer syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may have been ended
		}
	}
	w.endpoints = w.dir
	w.do("", "run", "a/l", "--", "true")
	r := w.try("", "ls", "--timeout", "1s")
	if r.code != 4 || !strings.Contains(r.errs, "incomplete: cell 1") || !strings.Contains(r.out, "a/l0") || strings.Contains(r.out, "b/l0") {
		w.t.Errorf("without cell 1: %+v", r)
	}
}
