// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
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

// forever is a wait without an end, in milliseconds on the wire and as a Duration.
const forever = -1

// asking returns the options of a Caller that asks for this command, for so long.
func (a *app) asking(budget time.Duration) remote.Options {
	return remote.Options{Endpoints: a.servers(), ClusterID: a.cell.ClusterID, Budget: budget, Credential: a.credential(), Certificate: a.certificate()}
}

// withCaller runs f with a Caller; SIGINT and SIGTERM cancel its context.
func (a *app) withCaller(ctx context.Context, f func(context.Context, *remote.Caller) error) (err error) {
	if err := a.checkServers(); err != nil {
		return err
	}
	c, err := remote.New(a.asking(a.budget))
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

// identity is a client ID and a request ID; empty if the user named none.
type identity struct {
	client  string
	request uint64
}

// flags adds --client-id and --request-id, for scripts that repeat a command: the same IDs get
// the same answer.
func (id *identity) flags(fl *pflag.FlagSet) {
	fl.StringVar(&id.client, "client-id", "", "a name of your own for the requester, to repeat the command safely; with --request-id")
	fl.Uint64Var(&id.request, "request-id", 0, "the number of this request, rising with each new one of the client; the same for every repeat")
}

// named reports whether the user named the IDs.
func (id *identity) named() bool { return id.client != "" }

// check refuses one ID without the other, and client IDs that protect no repeats.
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

// identify returns id, or a drawn identity if it is empty, so that all attempts of this command
// are one request. Errors print it, so that the user can repeat the command.
func (a *app) identify(id identity) identity {
	if id.client == "" {
		id = a.drawn()
	}
	a.request = id
	return id
}

// drawn returns a random identity for one request. The service is asked to forget it when the
// command has its answer.
func (a *app) drawn() identity {
	id := identity{client: string(cluster.OneShotID(rand.Text())), request: 1}
	a.oneShots = append(a.oneShots, id.client)
	return id
}

// forget asks the service to drop what it remembers of the requests of this command, unless one
// of them may still be on its way: a forgotten request would be executed a second time.
func (a *app) forget(ctx context.Context, c *remote.Caller) {
	for _, client := range a.oneShots {
		c.Forget(ctx, client)
	}
	a.oneShots = nil
}

// taker returns a random identity to acquire a lock with. The service remembers it for as long
// as it waits or holds.
func taker() identity { return identity{client: "~" + rand.Text(), request: 1} }

// lease holds the flags of commands that acquire a lock.
type lease struct {
	ttl  time.Duration
	wait string
	// conflict is the exit code when the lock was not acquired.
	conflict int
	metadata string
	shared   bool
	// exclusive is true if the lock was asked for alone, which is the default.
	exclusive bool
	// nonblock is true for a single try; usually is what --wait is without the flag.
	nonblock bool
	usually  string
	// quiet is true if a wait is not reported on the standard error.
	quiet bool
	// after is the token since which nobody may have had the lock, and remember has the lock remember its last token.
	after    uint64
	remember bool
	// once is the slot for which the lock is acquired.
	once string
	// limit makes the lock one with so many permits, and weight is how many are taken.
	limit, weight uint32
}

func (l *lease) flags(fl *pflag.FlagSet, wait string) {
	l.usually = wait
	fl.DurationVar(&l.ttl, "ttl", 30*time.Second, "how long the lease lasts without a renewal")
	fl.StringVarP(&l.wait, "wait", "w", wait, "how long to wait for the lock: seconds or a duration, forever, or 0 to try once")
	fl.BoolVarP(&l.nonblock, "nonblock", "n", false, "try once, as --wait 0")
	fl.BoolVarP(&l.quiet, "quiet", "q", false, "do not report on the standard error who holds the lock during a wait")
	fl.StringVar(&l.metadata, "metadata", "", "a text of at most 4096 bytes that show and watch print with the lock")
	fl.IntVarP(&l.conflict, "conflict-exit-code", "E", exitHeld, "the exit code when the lock was not acquired")
}

// sharedFlag adds --shared, for commands that do not need the lock exclusively.
func (l *lease) sharedFlag(fl *pflag.FlagSet) {
	fl.BoolVarP(&l.shared, "shared", "s", false, "share the lock with other holders; nothing can be appended then")
	fl.BoolVarP(&l.exclusive, "exclusive", "x", false, "hold the lock alone (the default)")
}

// markFlags adds the flags about what a lock remembers. An empty value, as of a variable of a script that was never set, is no
// condition that always holds, but a mistake.
func (l *lease) markFlags(fl *pflag.FlagSet) {
	fl.Func("after-token", "acquire the lock only if nobody had it since it was granted under this `token`; tries once", func(s string) (err error) {
		if l.after, err = strconv.ParseUint(s, 10, 64); err == nil && l.after == 0 {
			err = errors.New("tokens begin at 1")
		}
		return err
	})
	fl.BoolVar(&l.remember, "remember", false, "have the lock remember its last token when nobody holds it, for a later --after-token")
	fl.Func("once", "acquire the lock only if this `slot`, such as 2026-11-22, or a later one is not done yet", func(s string) error {
		l.once = s
		return cluster.Slot(s).Validate()
	})
}

// permitFlags adds the flags about a lock with a limit.
func (l *lease) permitFlags(fl *pflag.FlagSet) {
	fl.Uint32Var(&l.limit, "limit", 0, "take a permit of the lock, of which there are so many: all others have to give the same limit; nothing can be appended then")
	fl.Uint32Var(&l.weight, "weight", 1, "take so many permits of --limit")
}

func (l *lease) checkPermit(fl *pflag.FlagSet) error {
	switch {
	case fl.Changed("limit") && l.limit == 0:
		return usagef("--limit 0: there is at least one permit")
	case l.limit == 0 && fl.Changed("weight"):
		return usagef("--weight %d: say by --limit of how many permits", l.weight)
	case l.limit != 0 && (l.weight == 0 || l.weight > l.limit):
		return usagef("--weight %d: use 1 to --limit %d", l.weight, l.limit)
	case l.limit != 0 && (l.shared || l.exclusive):
		return usagef("--limit and --shared or --exclusive: a permit leaves the lock to others as far as the limit reaches")
	case l.limit != 0 && l.once != "":
		return usagef("--limit and --once: what is done once is done by one holder")
	}
	return nil
}

// permit returns the limit and the weight for a request.
func (l *lease) permit() (limit, weight uint32) {
	if l.limit == 0 {
		return 0, 0
	}
	return l.limit, l.weight
}

func (l *lease) mode() pb.Mode {
	if l.shared {
		return pb.Mode_MODE_SHARED
	}
	return pb.Mode_MODE_EXCLUSIVE
}

// waitFor parses --wait; forever is a wait without an end.
func (l *lease) waitFor() (time.Duration, error) {
	if l.nonblock || l.after != 0 {
		return 0, nil
	}
	switch l.wait {
	case "forever":
		return forever, nil
	case "0", "":
		return 0, nil
	}
	d, err := parseDuration(l.wait)
	if err != nil || d < 0 {
		return 0, usagef("--wait %q: use seconds, a duration like 30s, forever, or 0 to try once", l.wait)
	}
	return d, nil
}

func (l *lease) check() error {
	if l.ttl <= 0 {
		return usagef("--ttl %v: use a duration like 30s", l.ttl)
	}
	if l.nonblock && l.wait != l.usually && l.wait != "0" {
		return usagef("--nonblock, -n, tries once, and --wait %s waits: leave one of them out", l.wait)
	}
	if l.after != 0 && l.wait != l.usually && l.wait != "0" {
		return usagef("--after-token tries once, because whoever it waited for would change the last token: leave out --wait %s", l.wait)
	}
	if l.once != "" && l.shared {
		return usagef("--once and --shared: what is done once is done by one holder")
	}
	if l.shared && l.exclusive {
		return usagef("--shared and --exclusive, -s and -x: leave one of them out")
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

// conflicts returns err as a *conflictError with the exit code of -E, if it means that the lock
// was not acquired.
func (l *lease) conflicts(err error) error {
	if errors.Is(err, wire.ErrHeld) || errors.Is(err, wire.ErrWaitTimeout) || errors.Is(err, wire.ErrLockChanged) {
		wait, _ := l.waitFor() // it was checked before
		return &conflictError{err, l.conflict, max(wait, 0)}
	}
	return err
}

// acquire acquires a lock, waiting in the queue for as long as --wait permits.
func (a *app) acquire(ctx context.Context, c *remote.Caller, lock string, l *lease, id identity) (*pb.Answer, error) {
	wait, err := l.waitFor()
	if err != nil {
		return nil, err
	}
	q := &pb.AcquireRequest{
		ClientId: id.client, RequestId: id.request, Lock: lock, TtlMs: wire.FloorMillis(l.ttl), Holder: a.callersHolder(), Metadata: l.metadata, Mode: l.mode(),
		AfterToken: l.after, Remember: l.remember, Once: l.once,
	}
	q.Limit, q.Weight = l.permit()
	if wait != 0 {
		ms := int64(forever)
		if wait > 0 {
			ms = wire.CeilMillis(wait)
		}
		q.WaitMs = &ms
		stop := a.keepPlace(ctx, id.client, l.ttl)
		defer stop()
		defer a.reportWait(ctx, lock, l, waiting{identity: id})()
	}
	r, err := remote.Wait(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Acquire(ctx, q) })
	if ctx.Err() != nil {
		return nil, a.giveUp(c, lock, id)
	}
	if err == nil {
		if err = cmp.Or(wire.Unmarked(r, l.after != 0 || l.remember || l.once != ""), wire.Unlimited(r, q.Limit, q.Weight)); err != nil {
			_, kept := a.release(ctx, c, lock, r.GetToken(), a.drawn(), false)
			return nil, errors.Join(err, kept)
		}
	}
	return r, l.conflicts(err)
}

// keepPlace keeps a waiting client's place with keep-alives until stop is called. It renews no
// grant of the client: one that an earlier run left would never end.
func (a *app) keepPlace(ctx context.Context, client string, ttl time.Duration) (stop func()) {
	return a.every(ctx, ttl/3, func(ctx context.Context, c *remote.Caller) {
		// The request that waits learns of a lost place itself.
		_, _ = remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.KeepAliveResponse, error) {
			return s.KeepAlive(ctx, &pb.KeepAliveRequest{ClientId: client, PlacesOnly: true})
		})
	})
}

// every calls f in each interval, on a connection of its own, until stop is called.
func (a *app) every(ctx context.Context, interval time.Duration, f func(context.Context, *remote.Caller)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := remote.New(a.asking(interval))
		if err != nil {
			return // the main call reports the error
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

// giveUpTime bounds the clean-up after the user's Ctrl-C.
const giveUpTime = 2 * time.Second

// giveUp leaves the queue, and releases the lock if it was granted meanwhile.
func (a *app) giveUp(c *remote.Caller, lock string, id identity) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTime)
	defer cancel()
	r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
		return s.Cancel(ctx, &pb.CancelRequest{ClientId: id.client, RequestId: id.request})
	})
	if token := r.GetToken(); err == nil && token != 0 {
		// Request IDs after that of the request belong to the user.
		if _, err = a.release(ctx, c, lock, token, a.drawn(), false); err != nil && !over(err) {
			return fmt.Errorf("%w; the lock was granted meanwhile and could not be released, token %d ends with its lease: %w", errInterrupted, token, err)
		}
		return errInterrupted
	}
	if err != nil && !over(err) {
		return fmt.Errorf("%w; request %d of client %s may still be in the queue: %w", errInterrupted, id.request, id.client, err)
	}
	return errInterrupted
}

// over reports whether err means that the request neither holds nor waits any more.
func over(err error) bool {
	return errors.Is(err, wire.ErrCancelled) || errors.Is(err, wire.ErrWaitTimeout) || errors.Is(err, wire.ErrLeaseExpired) || errors.Is(err, wire.ErrInvalidToken)
}

var errInterrupted = errors.New("interrupted")

func (a *app) release(ctx context.Context, c *remote.Caller, lock string, token uint64, id identity, done bool) (*pb.Answer, error) {
	q := &pb.ReleaseRequest{ClientId: id.client, RequestId: id.request, Lock: lock, Token: token, Done: done}
	return remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Release(ctx, q) })
}

// withToken runs f with the token, or, if that is 0, acquires the lock, keeps it while f runs,
// and releases it.
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
		// The next use of the token notices a lost lease.
		_, _ = remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
			return s.RenewLease(ctx, &pb.RenewLeaseRequest{Lock: lock, Token: token})
		})
	})
	err = f(token)
	stop()
	// Also after Ctrl-C: other clients wait for the lock.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), remote.DefaultBudget)
	defer cancel()
	_, released := a.release(ctx, c, lock, token, identity{id.client, 2}, false)
	if err == nil && released != nil && !over(released) {
		fmt.Fprintf(a.Stderr, "holdfast: done, but the lock could not be released and ends with its lease: %v\n", released)
	}
	return err
}

// tokenUse is the usage text of --token for commands that need a token.
const tokenUse = "the token of the lock (default: that of the holdfast run above)"

// tokenFlag adds --token.
func tokenFlag(c *cobra.Command, token *uint64, use string) {
	c.Flags().Uint64Var(token, "token", 0, use)
}

// exactly accepts one argument for each name; its error has the names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s: want %s, not %d arguments; see %s --help", c.Name(), strings.Join(names, " and "), len(args), c.CommandPath())
		}
		return nil
	}
}
