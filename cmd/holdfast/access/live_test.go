// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

const anyRule = "[[rule]]\nwho = [\"*\"]\nmay = [\"read\"]\nlocks = [\"**\"]\n"

// living is a Live on a simulated disk that runs.
type living struct {
	*rules.Live
	t       *testing.T
	disk    *volumetest.Disk
	host    *volumetest.Host // of the Live
	other   *volumetest.Host
	log     *bytes.Buffer
	changes []uint64
}

// live runs f with a Live that runs, on a volume with these versions of the rules.
func live(t *testing.T, texts []string, f func(t *testing.T, l *living)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := volumetest.New(1)
		l := &living{t: t, disk: d, host: d.Host(1, volumetest.ProfileLocal()), other: d.Host(2, volumetest.ProfileLocal()), log: &bytes.Buffer{}}
		for i, text := range texts {
			publish(t, l.other, uint64(i), text)
		}
		var err error
		if l.Live, err = rules.OpenLive(l.host, zerolog.New(l.log)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, func(r *access.Rules) { l.changes = append(l.changes, r.Version()) })
		}()
		f(t, l)
		cancel()
		<-done
	})
}

// after wants a version in force after a while.
func (l *living) after(d time.Duration, want uint64) {
	l.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := l.Rules().Version(); got != want {
		l.t.Errorf("version %d is in force, want %d; log:\n%s", got, want, l.log)
	}
}

func (l *living) logged(want string, times int) {
	l.t.Helper()
	if got := strings.Count(l.log.String(), want); got != times {
		l.t.Errorf("%q was logged %d times, want %d:\n%s", want, got, times, l.log)
	}
}

func TestLiveFollows(t *testing.T) {
	live(t, nil, func(t *testing.T, l *living) {
		if l.Rules() != nil {
			t.Error("a volume without rules has some")
		}
		l.after(20*time.Second, 0)
		publish(t, l.other, 0, anyRule)
		l.after(501*time.Millisecond, 1)
		publish(t, l.other, 1, anyRule)
		publish(t, l.other, 2, anyRule)
		l.after(501*time.Millisecond, 3)
		if len(l.changes) != 2 || l.changes[1] != 3 {
			t.Errorf("the changes are %v", l.changes)
		}
		l.logged("error", 0)
	})
}

// TestLiveListsWhatNamesMiss: numbers were left out by hand, and only the list has the next one.
func TestLiveListsWhatNamesMiss(t *testing.T) {
	live(t, []string{anyRule}, func(t *testing.T, l *living) {
		publish(t, l.other, 1, anyRule)
		if err := l.disk.Rename(volume.RulesPath(2), volume.RulesPath(9)); err != nil {
			t.Fatal(err)
		}
		l.after(9*time.Second, 1)
		l.after(2*time.Second, 9)
		publish(t, l.other, 9, anyRule)
		l.after(501*time.Millisecond, 10)
	})
}

// TestLiveRefresh: who asks for a look gets one that began after the question. All share it, and there are few.
func TestLiveRefresh(t *testing.T) {
	live(t, []string{anyRule}, func(t *testing.T, l *living) {
		time.Sleep(10 * time.Millisecond)
		publish(t, l.other, 1, anyRule)
		began := time.Now()
		l.Refresh()
		if took := time.Since(began); l.Rules().Version() != 2 || took > 50*time.Millisecond {
			t.Errorf("version %d after %v", l.Rules().Version(), took)
		}
		publish(t, l.other, 2, anyRule)
		if l.Refresh(); l.Rules().Version() != 3 || time.Since(began) > 250*time.Millisecond {
			t.Errorf("version %d after %v", l.Rules().Version(), time.Since(began))
		}
		began = time.Now()
		before := len(l.host.Trace())
		var all sync.WaitGroup
		for range 50 { // strangers, for two seconds
			all.Go(func() {
				for n := 0; n < 200 && time.Since(began) < 2*time.Second; n++ { // not for ever where time stands still
					l.Refresh()
				}
			})
		}
		all.Wait()
		if looks := len(l.host.Trace()) - before; looks > 30 {
			t.Errorf("the volume was read %d times in two seconds", looks)
		}
		gate := volumetest.NewGate()
		l.host.SetHook(func(volumetest.Call) volumetest.Action { return volumetest.Pause(gate) })
		began = time.Now()
		if l.Refresh(); time.Since(began) != time.Second {
			t.Errorf("a volume that hangs holds up for %v", time.Since(began))
		}
		l.host.SetHook(nil)
		gate.Resume()
	})
}

func TestLiveSkipsWhatDoesNotParse(t *testing.T) {
	live(t, []string{anyRule, "nonsense"}, func(t *testing.T, l *living) {
		l.after(time.Minute, 1)
		publish(t, l.other, 2, anyRule+"luck = 1\n")
		publish(t, l.other, 3, anyRule)
		publish(t, l.other, 4, "nonsense")
		l.after(501*time.Millisecond, 4)
		l.after(time.Minute, 4)
		l.logged("is skipped: line 1, column", 2) // versions 2 and 5, once each; of 3 nobody asks
		publish(t, l.other, 5, anyRule)
		l.after(501*time.Millisecond, 6)
	})
}

func TestLiveNeverGoesBack(t *testing.T) {
	live(t, []string{anyRule, anyRule, anyRule}, func(t *testing.T, l *living) {
		if err := errors.Join(l.disk.Remove(volume.RulesPath(3)), l.disk.Remove(volume.RulesPath(2))); err != nil {
			t.Fatal(err)
		}
		l.after(time.Minute, 3)
		l.logged("access version 3 has vanished", 1)
		publish(t, l.other, 1, "# an old number again\n"+anyRule)
		l.after(time.Minute, 3)
		if err := l.disk.Remove("access"); err != nil {
			t.Fatal(err)
		}
		l.after(time.Minute, 3)
		if len(l.changes) > 0 {
			t.Errorf("the changes are %v", l.changes)
		}
	})
}

// TestLiveWaitsForTheFilesystem: what cannot be read now is read later, and a call that hangs leaves the rules.
func TestLiveWaitsForTheFilesystem(t *testing.T) {
	live(t, []string{anyRule}, func(t *testing.T, l *living) {
		l.host.SetHook(volumetest.From(1, volumetest.FailBefore(syscall.EIO)))
		publish(t, l.other, 1, anyRule)
		l.after(5*time.Second, 1)
		l.logged("the access rules stay as they are", 1)
		l.host.SetHook(nil)
		l.after(501*time.Millisecond, 2)
		publish(t, l.other, 2, anyRule)
		if err := l.disk.Expose(volume.RulesPath(3)); err != nil {
			t.Fatal(err)
		}
		l.after(time.Minute, 2)
		l.logged("chmod -R go= DIR/access", 1)
		publish(t, l.other, 3, anyRule)
		l.after(501*time.Millisecond, 4)
	})
	live(t, []string{anyRule}, func(t *testing.T, l *living) {
		gate := volumetest.NewGate()
		l.host.SetHook(volumetest.From(1, volumetest.Pause(gate)))
		publish(t, l.other, 1, anyRule)
		l.after(time.Hour, 1)
		l.host.SetHook(nil)
		gate.Resume()
		l.after(time.Second, 2)
	})
}

func TestOpenLiveRefuses(t *testing.T) {
	for name, x := range map[string]struct {
		texts []string
		harm  func(d *volumetest.Disk, h *volumetest.Host) error
		want  string
	}{
		"nothing parses": {[]string{"nonsense", "more"}, func(*volumetest.Disk, *volumetest.Host) error { return nil }, "no version of the access rules can be used"},
		"the newest is exposed": {[]string{anyRule, anyRule}, func(d *volumetest.Disk, _ *volumetest.Host) error {
			return d.Expose(volume.RulesPath(2))
		}, "chmod -R go= DIR/access"},
		"the newest cannot be read": {[]string{anyRule, anyRule}, func(_ *volumetest.Disk, h *volumetest.Host) error {
			h.SetHook(volumetest.AtOp(volumetest.OpReadAt, volume.RulesPath(2), 1, volumetest.FailBefore(syscall.EIO)))
			return nil
		}, "access version 2"},
		"the list cannot be read": {[]string{anyRule}, func(_ *volumetest.Disk, h *volumetest.Host) error {
			h.SetHook(volumetest.From(1, volumetest.FailBefore(syscall.EIO)))
			return nil
		}, "the versions of the access rules"},
	} {
		d := volumetest.New(1)
		h := d.Host(1, volumetest.ProfileLocal())
		for i, text := range x.texts {
			publish(t, d.Host(2, volumetest.ProfileLocal()), uint64(i), text)
		}
		if err := x.harm(d, h); err != nil {
			t.Fatal(err)
		}
		if _, err := rules.OpenLive(h, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
