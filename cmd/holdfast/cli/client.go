// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// forever is the wait that has no end, in milliseconds on the wire and as a Duration.
const forever = -1

// withCaller runs f with a Caller, and ends its context with SIGINT or SIGTERM.
func (a *app) withCaller(ctx context.Context, f func(context.Context, *remote.Caller) error) (err error) {
	if err := a.checkServers(); err != nil {
		return err
	}
	c, err := remote.New(remote.Options{Endpoints: a.servers(), Budget: a.budget})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	ctx, stop := untilSignal(ctx)
	defer stop()
	err = f(ctx, c)
	if err == nil {
		a.forget(ctx, c)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, errInterrupted) {
		err = fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return err
}

// identity is who makes a request.
type identity struct {
	client  string
	request uint64
}

// flags are for scripts that repeat a command: the same IDs, the same answer.
func (id *identity) flags(fl *pflag.FlagSet) {
	fl.StringVar(&id.client, "client-id", "", "a name of your own for the requester, to repeat the command safely; with --request-id")
	fl.Uint64Var(&id.request, "request-id", 0, "the number of this request, rising with each new one of the client; the same for every repeat")
}

// named says that the user chose the IDs.
func (id *identity) named() bool { return id.client != "" }

// check refuses half of an identity.
func (id *identity) check() error {
	if (id.client == "") != (id.request == 0) {
		return usagef("--client-id and --request-id go together: both, or neither")
	}
	if id.client != "" {
		if err := cluster.ClientID(id.client).Validate(); err != nil {
			return usagef("--client-id: %v", err)
		}
		if cluster.ClientID(id.client).Anonymous() {
			return usagef("--client-id %q: names that begin with ~ protect no repeats: choose another one", id.client)
		}
	}
	return nil
}

// identify draws an ID where none was given: every try of this command is then
// one request all the same. Errors tell it, to repeat the command.
func (a *app) identify(id identity) identity {
	if id.client == "" {
		id = a.drawn()
	}
	a.request = id
	return id
}

// drawn is an identity for one request. It is forgotten when the command has its answer.
func (a *app) drawn() identity {
	id := identity{client: string(cluster.OneShotID(rand.Text())), request: 1}
	a.oneShots = append(a.oneShots, id.client)
	return id
}

// forget drops what the service remembers of the requests of this command, unless one of them
// may still be on its way: to be forgotten is to be executed anew.
func (a *app) forget(ctx context.Context, c *remote.Caller) {
	for _, client := range a.oneShots {
		c.Forget(ctx, client)
	}
	a.oneShots = nil
}

// taker is an identity to get a lock with: it is remembered for as long as it waits or holds.
func taker() identity { return identity{client: "~" + rand.Text(), request: 1} }

// lease is how a lock is wanted.
type lease struct {
	ttl  time.Duration
	wait string
	// conflict is the exit code when the lock was not gotten.
	conflict int
	metadata string
	shared   bool
}

func (l *lease) flags(fl *pflag.FlagSet, wait string) {
	fl.DurationVar(&l.ttl, "ttl", 30*time.Second, "how long the lease lasts without a renewal")
	fl.StringVar(&l.wait, "wait", wait, "how long to wait for the lock: a duration, forever, or 0 to try once")
	fl.StringVar(&l.metadata, "metadata", "", "what to say with the lock, for whoever looks: text of at most 4096 bytes")
	fl.IntVarP(&l.conflict, "conflict-exit-code", "E", exitHeld, "the exit code when the lock was not gotten")
}

// sharedFlag is for commands that need not have the lock alone.
func (l *lease) sharedFlag(fl *pflag.FlagSet) {
	fl.BoolVar(&l.shared, "shared", false, "hold the lock together with others who share it; nothing can be appended then")
}

func (l *lease) mode() pb.Mode {
	if l.shared {
		return pb.Mode_MODE_SHARED
	}
	return pb.Mode_MODE_EXCLUSIVE
}

// waitFor reads --wait.
func (l *lease) waitFor() (time.Duration, error) {
	switch l.wait {
	case "forever":
		return forever, nil
	case "0", "":
		return 0, nil
	}
	d, err := time.ParseDuration(l.wait)
	if err != nil || d < 0 {
		return 0, usagef("--wait %q: use a duration like 30s, forever, or 0 to try once", l.wait)
	}
	return d, nil
}

func (l *lease) check() error {
	if l.ttl <= 0 {
		return usagef("--ttl %v: use a duration like 30s", l.ttl)
	}
	if !utf8.ValidString(l.metadata) || len(l.metadata) > cluster.MaxMetadata {
		return usagef("--metadata, or --value: use UTF-8 of at most %d bytes", cluster.MaxMetadata)
	}
	if l.conflict < 0 || l.conflict > 255 {
		return usagef("--conflict-exit-code %d: use 0 to 255", l.conflict)
	}
	_, err := l.waitFor()
	return err
}

// conflicts gives an error that the lock was not gotten its exit code.
func (l *lease) conflicts(err error) error {
	if errors.Is(err, wire.ErrHeld) || errors.Is(err, wire.ErrWaitTimeout) {
		return &conflictError{err, l.conflict}
	}
	return err
}

// holder tells people who asks.
func holder(command string) *pb.Holder {
	host, _ := os.Hostname() // for people: unknown will do
	if command == "" {
		command = filepath.Base(os.Args[0])
	}
	return &pb.Holder{Host: clip(host), Pid: int64(os.Getppid()), Command: clip(command)}
}

// clip makes a text fit that is for people, and that the wire takes only as UTF-8.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.ToValidUTF8(s[:min(len(s), cluster.MaxText)], "")
}

// acquire gets a lock, waiting in line if need be.
func (a *app) acquire(ctx context.Context, c *remote.Caller, lock string, l *lease, id identity) (*pb.Answer, error) {
	wait, err := l.waitFor()
	if err != nil {
		return nil, err
	}
	q := &pb.AcquireRequest{
		ClientId: id.client, RequestId: id.request, Lock: lock, TtlMs: wire.FloorMillis(l.ttl), Holder: holder(""), Metadata: l.metadata, Mode: l.mode(),
	}
	if wait != 0 {
		ms := int64(forever)
		if wait > 0 {
			ms = wire.CeilMillis(wait)
		}
		q.WaitMs = &ms
		stop := a.keepPlace(ctx, id.client, l.ttl)
		defer stop()
	}
	r, err := remote.Wait(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Acquire(ctx, q) })
	if ctx.Err() != nil {
		return nil, a.giveUp(c, lock, id)
	}
	return r, l.conflicts(err)
}

// keepPlace tells the service that a waiting client lives. What the client holds is not
// its business: a grant that an earlier run left behind would never end.
func (a *app) keepPlace(ctx context.Context, client string, ttl time.Duration) (stop func()) {
	return a.every(ctx, ttl/3, func(ctx context.Context, c *remote.Caller) {
		// A place that was lost is noticed by the request that waits for it.
		_, _ = remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.KeepAliveResponse, error) {
			return s.KeepAlive(ctx, &pb.KeepAliveRequest{ClientId: client, PlacesOnly: true})
		})
	})
}

// every calls f on a connection of its own until it is stopped.
func (a *app) every(ctx context.Context, interval time.Duration, f func(context.Context, *remote.Caller)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := remote.New(remote.Options{Endpoints: a.servers(), Budget: interval})
		if err != nil {
			return // the main call says it
		}
		defer c.Close() //nolint:errcheck // nothing is in flight
		t := time.NewTicker(max(interval, 10*time.Millisecond))
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				f(ctx, c)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// giveUpTime bounds what is done after the user's Ctrl-C.
const giveUpTime = 2 * time.Second

// giveUp leaves the queue, and lets go of a lock that came meanwhile.
func (a *app) giveUp(c *remote.Caller, lock string, id identity) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
	defer cancel()
	r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return s.Cancel(ctx, &pb.CancelRequest{ClientId: id.client, RequestId: id.request})
	})
	if token := r.GetToken(); err == nil && token != 0 {
		// The numbers behind that of the request are the user's.
		if _, err = a.release(ctx, c, lock, token, a.drawn()); err != nil && !over(err) {
			return fmt.Errorf("%w; the lock came meanwhile and could not be released, token %d ends with its lease: %w", errInterrupted, token, err)
		}
		return errInterrupted
	}
	if err != nil && !over(err) {
		return fmt.Errorf("%w; request %d of client %s may still be in the queue: %w", errInterrupted, id.request, id.client, err)
	}
	return errInterrupted
}

// over says that what was given up is no more: it neither holds nor waits.
func over(err error) bool {
	return errors.Is(err, wire.ErrCancelled) || errors.Is(err, wire.ErrWaitTimeout) || errors.Is(err, wire.ErrLeaseExpired) || errors.Is(err, wire.ErrInvalidToken)
}

var errInterrupted = errors.New("interrupted")

func (a *app) release(ctx context.Context, c *remote.Caller, lock string, token uint64, id identity) (*pb.Answer, error) {
	q := &pb.ReleaseRequest{ClientId: id.client, RequestId: id.request, Lock: lock, Token: token}
	return remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Release(ctx, q) })
}

// withToken runs f under the token, or under a lock that is gotten for it, kept
// and released.
func (a *app) withToken(ctx context.Context, c *remote.Caller, lock string, token uint64, l *lease, f func(token uint64) error) error {
	if token != 0 {
		return f(token)
	}
	id := taker()
	r, err := a.acquire(ctx, c, lock, l, id)
	if err != nil {
		return err
	}
	token = r.GetToken()
	stop := a.every(ctx, l.ttl/3, func(ctx context.Context, c *remote.Caller) {
		// A lease that was lost is noticed by the next use of the token.
		_, _ = remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
			return s.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: lock, Token: token})
		})
	})
	err = f(token)
	stop()
	// Also after Ctrl-C: others wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), remote.DefaultBudget)
	defer cancel()
	_, released := a.release(ctx, c, lock, token, identity{id.client, 2})
	if err == nil && released != nil && !over(released) {
		fmt.Fprintf(a.Stderr, "holdfast: done, but the lock could not be released and ends with its lease: %v\n", released)
	}
	return err
}

// tokenUse is the use of a token that a command cannot do without.
const tokenUse = "the token of the lock (default: that of the holdfast run above)"

// tokenFlag is --token.
func tokenFlag(c *cobra.Command, token *uint64, use string) {
	c.Flags().Uint64Var(token, "token", 0, use)
}

// exactly wants so many arguments and says which.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s: want %s, not %d arguments; see %s --help", c.Name(), strings.Join(names, " and "), len(args), c.CommandPath())
		}
		return nil
	}
}
