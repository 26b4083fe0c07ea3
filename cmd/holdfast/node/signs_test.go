// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// TestSignThatRisesIsOfAProcessOnTheVolume: a sign that was read twice proves nothing, it may
// have come with a copy of the volume; one that rises does, also between those of another process.
func TestSignThatRisesIsOfAProcessOnTheVolume(t *testing.T) {
	s := signs{}
	for i, x := range []struct {
		nonce, count uint64
		proves       bool
	}{
		{7, 100, false},
		{7, 100, false},
		{7, 101, true},
		{8, 1, false},
		{7, 101, false},
		{8, 3, true},
		{7, 102, true},
		{7, 100, false}, // what an old cache holds
		{7, 102, false},
	} {
		if got := s.rises(volume.Process{Nonce: x.nonce, Count: x.count}); got != x.proves {
			t.Errorf("row %d: proves %v, want %v", i, got, x.proves)
		}
	}
	for nonce := range uint64(1000) {
		s.rises(volume.Process{Nonce: nonce, Count: 1})
	}
	if len(s) > maxSigns {
		t.Errorf("%d processes are remembered", len(s))
	}
}

// TestWhatIsToldOfStrangersIsPlainText: names hold anything, and pings carry only UTF-8.
func TestWhatIsToldOfStrangersIsPlainText(t *testing.T) {
	odd := "/mnt/\x1b[2J\xff" + strings.Repeat("é", 1000)
	said := about(&Options{Path: odd})
	if !utf8.ValidString(said) || len(said) > 2*maxAbout || strings.ContainsRune(said, '\x1b') {
		t.Errorf("this process says of itself %q", said)
	}
	var n Node
	told := n.strangerText(election.Stranger{ID: 2, About: odd, From: "10.0.0.9:7"})
	for _, want := range []string{"SERVER ID 2", "/mnt/?[2J", "10.0.0.9:7", "stop it"} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not in %q", want, told)
		}
	}
	if strings.ContainsRune(told, '\x1b') {
		t.Errorf("told: %q", told)
	}
}

// TestStrangerWithoutAKeyIsReported: once it was there for a while, in the log once, and as long as it pings.
func TestStrangerWithoutAKeyIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		x := startAloneOn(t, func(int64) bool { return false }, zerolog.New(zerolog.SyncWriter(&said)), nil)
		defer func() { x.stop(); <-x.ended }()
		reported := func() bool {
			return slices.ContainsFunc(x.Status().Servers[1].Warnings, func(w string) bool {
				return strings.Contains(w, "USES SERVER ID 2 AND DOES NOT WRITE TO THIS VOLUME: a copy, at 10.0.0.9:7")
			})
		}
		for i := range 100 {
			x.HandleStranger(election.Stranger{ID: 2, Nonce: uint64(i), About: "a copy", From: "10.0.0.9:7"})
			x.HandleStranger(election.Stranger{ID: 77})
			time.Sleep(100 * time.Millisecond)
			if got, want := reported(), i >= 29; got != want {
				t.Fatalf("after %v: reported %v", time.Duration(i+1)*100*time.Millisecond, got)
			}
		}
		synctest.Wait() // nobody writes to the log
		if n := strings.Count(said.String(), "USES SERVER ID"); n != 1 {
			t.Errorf("logged %d times: %s", n, &said)
		}
		if time.Sleep(11 * time.Second); reported() {
			t.Error("it is reported though it has gone")
		}
	})
}

// TestServerThatIsDisownedIsNotAble: a server whose key another one does not find neither votes nor takes over, and says so.
func TestServerThatIsDisownedIsNotAble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startAlone(t, func(int64) bool { return false })
		x.stop() // the status is as it was
		<-x.ended
		var age time.Duration
		x.opt.Disowned = func() (cluster.ServerID, time.Duration) { return 2, age }
		limit := x.opt.Timing.StorageTimeout
		for _, row := range []struct {
			age        time.Duration
			able, told bool
		}{{0, true, false}, {1, false, false}, {4 * time.Second, false, true}, {time.Hour, false, true}} {
			age = row.age
			me := x.me()
			told := slices.ContainsFunc(me.Warnings, func(w string) bool { return strings.Contains(w, "SERVER 2 HAS NOT FOUND THIS SERVER'S KEY") })
			if able := x.self().Storage <= limit; able != row.able || told != row.told {
				t.Errorf("disowned for %v: able %v, told %v", row.age, able, told)
			}
		}
	})
}
