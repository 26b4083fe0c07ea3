// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/push"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// nobody reaches no other server.
type nobody struct{}

var errNobody = errors.New("nobody answers")

func (nobody) Follow(cluster.Members) {}

func (nobody) Ping(context.Context, cluster.ServerID, election.Ping) (election.Pong, error) {
	return election.Pong{}, errNobody
}

func (nobody) PreVote(context.Context, cluster.ServerID, election.Ask) (election.Vote, error) {
	return election.Vote{}, errNobody
}

func (nobody) Push(context.Context, cluster.ServerID, push.Push) (push.Ack, error) {
	return push.Ack{}, errNobody
}

func (nobody) Handover(context.Context, cluster.ServerID, cluster.Epoch) error { return errNobody }

// alone is a replica that reaches nobody, and runs.
type alone struct {
	*Node
	host  *volumetest.Host
	stop  context.CancelFunc
	ended chan error
	looks atomic.Int64 // by the volume's path
}

// startAlone starts server 1 of two. Its volume is found by its path as moved says.
func startAlone(t *testing.T, moved func(look int64) bool) *alone {
	t.Helper()
	return startAloneOn(t, moved, zerolog.Nop(), nil)
}

// startAloneOn is startAlone, where the volume does what hook says from the start.
func startAloneOn(t *testing.T, moved func(look int64) bool, log zerolog.Logger, hook volumetest.Hook) *alone {
	t.Helper()
	disk := volumetest.New(1)
	members := cluster.Members{{ID: 1, Client: "h1:1", Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}}
	if _, err := volume.Init(t.Context(), disk.Host(9, volumetest.ProfileLocal()), members, crand.Reader); err != nil {
		t.Fatal(err)
	}
	x := &alone{host: disk.Host(1, volumetest.ProfileLocal()), ended: make(chan error, 1)}
	x.host.SetHook(hook)
	n, err := New(Options{
		Server: 1, FS: x.host, Timing: cluster.DefaultTiming(), Peers: nobody{}, Log: log,
		Random: crand.Reader, Rand: rand.New(rand.NewPCG(1, 1)), Moved: func() bool { return moved(x.looks.Add(1)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	x.Node, x.stop = n, stop
	go func() { x.ended <- n.Run(ctx) }()
	time.Sleep(2400 * time.Millisecond) // between two probes
	return x
}

// probes has the writes that prove the volume do this.
func (x *alone) probes(do volumetest.Action) {
	x.host.SetHook(func(k volumetest.Call) volumetest.Action {
		if strings.HasSuffix(k.Name, ".process") {
			return do
		}
		return volumetest.Proceed()
	})
}

func (x *alone) me() serving.ServerStatus { return x.Status().Servers[0] }

// TestServerIsOpenedAnewOnlyWhereThatHelps: where the volume takes no writes and is there by its
// path, the server ends for it. One that is merely full, or hangs for a while, or is there once
// only, is left alone.
func TestServerIsOpenedAnewOnlyWhereThatHelps(t *testing.T) {
	always, never := func(int64) bool { return true }, func(int64) bool { return false }
	for name, x := range map[string]struct {
		moved func(int64) bool
		spoil func(*alone) (mend func())
		ends  bool
	}{
		"mounted anew": {always, func(x *alone) func() {
			x.probes(volumetest.FailBefore(syscall.ENOTCONN))
			return nil
		}, true},
		"takes writes":  {always, func(*alone) func() { return nil }, false},
		"takes none":    {never, func(x *alone) func() { x.probes(volumetest.FailBefore(syscall.EIO)); return nil }, false},
		"there by turn": {func(look int64) bool { return look%2 == 0 }, func(x *alone) func() { x.probes(volumetest.FailBefore(syscall.EIO)); return nil }, false},
		"fails briefly": {always, func(x *alone) func() {
			x.probes(volumetest.FailBefore(syscall.EIO))
			time.Sleep(x.opt.Timing.StorageTimeout - time.Second)
			return func() { x.host.SetHook(nil) }
		}, false},
		"hangs": {always, func(x *alone) func() {
			g := volumetest.NewGate()
			x.probes(volumetest.Pause(g))
			time.Sleep(x.opt.Timing.StorageTimeout - time.Second)
			return func() { x.host.SetHook(nil); g.Resume() }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startAlone(t, x.moved)
				if mend := x.spoil(n); mend != nil {
					mend()
				}
				time.Sleep(time.Minute)
				select {
				case err := <-n.ended:
					if !x.ends || !errors.Is(err, ErrReopen) {
						t.Errorf("it ends: %v", err)
					}
				default:
					if x.ends {
						t.Errorf("it goes on, after %d looks", n.looks.Load())
					}
					n.stop()
					<-n.ended
				}
				n.stop()
			})
		})
	}
}

// TestLookThatHangsIsTheOnlyOne: a look by the path hangs where the volume does. There is one at
// a time, and what it finds late counts for nothing once the volume takes writes again.
func TestLookThatHangsIsTheOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		n := startAlone(t, func(int64) bool { <-back; return true })
		g := volumetest.NewGate()
		n.probes(volumetest.Pause(g))
		time.Sleep(time.Minute)
		if looks := n.looks.Load(); looks != 1 {
			t.Errorf("%d looks that hang", looks)
		}
		n.host.SetHook(nil)
		g.Resume()
		synctest.Wait()
		close(back)
		time.Sleep(time.Minute)
		select {
		case err := <-n.ended:
			t.Errorf("it ends: %v", err)
		default:
			n.stop()
			<-n.ended
		}
	})
}

// TestServerTellsOfAVolumeThatTakesNoWrites: it is not able, and says since when and why.
func TestServerTellsOfAVolumeThatTakesNoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startAlone(t, func(int64) bool { return false })
		if s := n.me(); !s.Able || len(s.Warnings) > 0 {
			t.Errorf("at first: able %v, %q", s.Able, s.Warnings)
		}
		n.probes(volumetest.FailBefore(syscall.ENOTCONN))
		time.Sleep(10 * time.Second)
		s := n.me()
		if s.Able {
			t.Error("it calls itself able, and takes no writes")
		}
		if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "HAS TAKEN NO WRITE for 10s") || !strings.Contains(s.Warnings[0], syscall.ENOTCONN.Error()) {
			t.Errorf("it warns of %q", s.Warnings)
		}
		n.host.SetHook(nil)
		time.Sleep(2 * time.Second)
		if s := n.me(); !s.Able || len(s.Warnings) > 0 {
			t.Errorf("afterwards: able %v, %q", s.Able, s.Warnings)
		}
		n.stop()
		<-n.ended
	})
}

// TestServerSaysOnceWhyNoClaimIsPrepared: each try has a name of its own, which makes no other reason.
func TestServerSaysOnceWhyNoClaimIsPrepared(t *testing.T) {
	for _, op := range []string{volumetest.OpMkdir, volumetest.OpOpen} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				n := startAloneOn(t, func(int64) bool { return false }, zerolog.New(zerolog.SyncWriter(&log)), func(k volumetest.Call) volumetest.Action {
					if k.Op == op && strings.HasPrefix(k.Name, "servers/1.") && strings.Contains(k.Name, ".claim") {
						return volumetest.FailBefore(syscall.EACCES)
					}
					return volumetest.Proceed()
				})
				time.Sleep(10 * time.Second)
				n.stop()
				<-n.ended
				if said := strings.Count(log.String(), "cannot take over until a claim is prepared"); said != 1 {
					t.Errorf("said %d times: %s", said, &log)
				}
			})
		})
	}
}
