// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

func TestCheckpointLine(t *testing.T) {
	line := `{"level":"info","epoch":3,"lsn":41,"took":1500.5,"pending":0,"time":"2026-11-21T18:00:02.500Z","message":"checkpoint"}`
	i, ok := checkpointLine([]byte(line))
	to := time.Date(2026, 11, 21, 18, 0, 2, 500e6, time.UTC)
	if !ok || !i.To.Equal(to) || i.To.Sub(i.From) != 1500500*time.Microsecond {
		t.Errorf("%+v, %v", i, ok)
	}
	for _, other := range []string{"", "no JSON", `{"message":"checkpoint of something else","took":1}`} {
		if i, ok := checkpointLine([]byte(other)); ok {
			t.Errorf("%q: %+v", other, i)
		}
	}
}

func TestNoticedLine(t *testing.T) {
	for _, tt := range []struct {
		line string
		want bool
	}{
		{`{"primary":0,"was":2,"why":"its connection broke","time":"2026-11-21T18:00:02.500Z","message":"primary changed"}`, true},
		{`{"how":"elected","time":"2026-11-21T18:00:02.500Z","message":"this server should be primary"}`, true},
		{`{"primary":3,"was":0,"why":"found","time":"2026-11-21T18:00:02.500Z","message":"primary changed"}`, false},
		{`{"time":"2026-11-21T18:00:02.500Z","message":"checkpoint"}`, false},
		{`no JSON`, false},
	} {
		at, ok := noticedLine([]byte(tt.line))
		if ok != tt.want || ok && !at.Equal(time.Date(2026, 11, 21, 18, 0, 2, 500e6, time.UTC)) {
			t.Errorf("%s: %v, %v", tt.line, at, ok)
		}
	}
}

func TestHealthy(t *testing.T) {
	well := func() clientlib.StatusInfo {
		r := func(role string) clientlib.ServerInfo {
			return clientlib.ServerInfo{Role: role, Reachable: true, Able: true, Epoch: 2}
		}
		return clientlib.StatusInfo{Epoch: 2, Primary: &clientlib.PrimaryInfo{ID: 1}, Servers: []clientlib.ServerInfo{r("primary"), r("replica"), r("replica")}}
	}
	for _, tt := range []struct {
		name   string
		change func(*clientlib.StatusInfo)
		want   bool
	}{
		{"all well", func(*clientlib.StatusInfo) {}, true},
		{"no primary", func(s *clientlib.StatusInfo) { s.Primary = nil }, false},
		{"one away", func(s *clientlib.StatusInfo) { s.Servers[1].Reachable = false }, false},
		{"one not able", func(s *clientlib.StatusInfo) { s.Servers[2].Able = false }, false},
		{"one behind", func(s *clientlib.StatusInfo) { s.Servers[2].Epoch = clientlib.Epoch(1) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := well()
			tt.change(&s)
			if got := healthy(s); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestFreeAddresses(t *testing.T) {
	all, err := FreeAddresses(9)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range all {
		seen[a] = true
	}
	if len(seen) != 9 {
		t.Errorf("%v", all)
	}
}

func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Command{Name: "shell", Args: []string{"sh", "-c", "echo here I am; exec sleep 60"}, Log: log}.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if err := Stop([]*Process{p}, syscall.SIGTERM); err != nil {
		t.Errorf("stop a stopped process: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill it once more: %v", err)
	}
	if err := (Command{Args: []string{"sh", "-c", "echo because >&2; exit 3"}}).Run(); err == nil || !strings.Contains(err.Error(), "because") {
		t.Errorf("got %v, want the reason", err)
	}
	if _, err := FindBinary(filepath.Join(t.TempDir(), "nothing"), ""); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v, want what to do", err)
	}
}
