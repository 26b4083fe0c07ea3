// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// The environment of a command that runs under a lock.
const (
	envLock      = "HOLDFAST_LOCK"
	envToken     = "HOLDFAST_TOKEN"
	envEpoch     = "HOLDFAST_EPOCH"
	envEndpoints = "HOLDFAST_ENDPOINTS"
	envProofFile = "HOLDFAST_PROOF_FILE"
	// envTokenEndpoints are the servers that gave out the token in envToken. The user may name
	// others, with --endpoints or envEndpoints: there the token is unknown, or another client's.
	envTokenEndpoints = "HOLDFAST_TOKEN_ENDPOINTS"
)

// above returns the token of the `holdfast run` of this lock in which this process runs, 0 if
// there is none.
func (a *app) above(lock string) (cluster.Token, error) {
	if a.Getenv(envLock) != lock {
		return 0, nil
	}
	theirs := endpointsOf(a.Getenv(envTokenEndpoints))
	if !slices.ContainsFunc(a.given(), func(s string) bool { return slices.Contains(theirs, s) }) {
		return 0, nil
	}
	text := a.Getenv(envToken)
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, usagef("%s=%q is no token of lock %s: leave it as holdfast run has set it, or use --token", envToken, text, lock)
	}
	return cluster.Token(token), nil
}

// ownToken returns the token of --token, or without it that of the run above; 0 if there is none.
func (a *app) ownToken(c *cobra.Command, lock string, flag uint64) (uint64, error) {
	if c.Flags().Changed("token") {
		return flag, nil
	}
	token, err := a.above(lock)
	return uint64(token), err
}

// mustToken is ownToken for commands that need a token: without one it returns an error.
func (a *app) mustToken(c *cobra.Command, lock string, flag *uint64) (err error) {
	if *flag, err = a.ownToken(c, lock, *flag); err == nil && *flag == 0 {
		err = usagef("%s: name the token with --token; only inside holdfast run %s it is known", c.Name(), lock)
	}
	return err
}

// withinError reports that a command would wait for the lock of the run in which it runs.
type withinError struct {
	lock  cluster.LockName
	token cluster.Token
	err   error
}

func (e *withinError) Error() string {
	return fmt.Sprintf("lock %s is held, under token %d, by the holdfast run that this command runs in: it would wait for its own end", e.lock, e.token)
}

func (e *withinError) Unwrap() error { return e.err }

// acquireWithin acquires the lock of the run above. While that run holds it, the attempt does not
// wait; once its grant has ended, the attempt waits as usual.
func (r *running) acquireWithin(ctx context.Context, client *clientlib.Client, token cluster.Token, opt clientlib.AcquireOptions) (*clientlib.Lock, error) {
	once := opt
	once.Wait = 0
	lock, err := client.Acquire(ctx, r.lock, once)
	if !errors.Is(err, wire.ErrHeld) {
		return lock, err
	}
	if _, ended := client.Verify(ctx, r.lock, token); ended == nil {
		return nil, &withinError{r.lock, token, err}
	}
	if opt.Wait == 0 {
		return nil, err
	}
	return client.Acquire(ctx, r.lock, opt)
}

// within keeps a command from waiting for the run in which it runs: it returns a *withinError,
// or the answer of a lock that was granted at once, beside a run that shares it, or has other permits of it. If both results
// are nil the command may wait.
func (a *app) within(ctx context.Context, c *remote.Caller, lock string, l *lease, id identity) (*pb.Answer, error) {
	wait, err := l.waitFor()
	if err != nil || wait == 0 {
		return nil, err
	}
	token, err := a.above(lock)
	if err != nil || token == 0 {
		return nil, err
	}
	q := &pb.VerifyRequest{Lock: lock, Token: uint64(token)}
	v, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Verify(ctx, q) })
	if err != nil {
		return nil, nil // it has ended, or that is not known: the request itself finds out
	}
	held := l.conflicts(&withinError{cluster.LockName(lock), token, wire.Err(cluster.StatusHeld)})
	if !l.shared && l.limit == 0 || v.GetMode() != pb.Mode_MODE_SHARED {
		return nil, held
	}
	if id.named() && !cluster.ClientID(id.client).Anonymous() {
		return nil, nil // under its ID it is one request with its wait
	}
	once := *l
	once.wait = "0"
	r, err := a.acquire(ctx, c, lock, &once, id)
	if errors.Is(err, wire.ErrHeld) {
		err = held
	}
	return r, err
}
