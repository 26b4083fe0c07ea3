// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Service is what a Server needs of an httpapi.Door. Its methods are safe for use by several
// goroutines.
type Service interface {
	// Call executes what a POST to /v1/name would, here or where the primary is. It
	// always answers, with UNKNOWN when ctx ends.
	Call(ctx context.Context, name string, body []byte) httpapi.Reply
	// Lock reads this server's own table. An error is a context that ended.
	Lock(ctx context.Context, q *pb.GetLockRequest) (*pb.GetLockResponse, error)
	// Authenticate returns the caller that a credential proves; for "", whose connection it is by its address.
	Authenticate(credential string, from net.Addr) (*access.Caller, error)
}

const (
	// callWait is how long one call may take, beside what it waits in line.
	callWait = 15 * time.Second
	// rounds is how often a line is tried on a lock that changes meanwhile.
	rounds = 3
	// catchUp is how long OWN waits for a replica that is behind what the connection knows.
	catchUp = time.Second
	// pause is the time between two tries of OWN.
	pause = 5 * time.Millisecond
	// maxAge is how old the table may be that OWN answers from.
	maxAge = 5 * time.Second
)

// caller executes the lines of one connection, one after the other.
type caller struct {
	s      Service
	from   string // the client's host, for people
	remote net.Addr
	seen   uint64 // the highest LSN in an answer
	is     *access.Caller
}

// commands are what the commands of the table of operations do.
var commands = map[string]func(c *caller, ctx, left context.Context, l *line) string{
	"LOCK":   (*caller).lock,
	"UNLOCK": (*caller).unlock,
	"RENEW":  (*caller).renew,
	"TOKEN":  (*caller).token,
	"OWN":    (*caller).own,
}

// execute executes a line and returns its answer. Ctx ends with the server, left when the client
// sends nothing more.
func (c *caller) execute(ctx, left context.Context, l *line) string {
	if l.command == quit {
		return success // the reader ends the connection
	}
	if l.command == auth {
		is, err := c.s.Authenticate(l.credential, c.remote)
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Status != cluster.StatusUnauthenticated {
			return failed // it was not looked at
		} else if err != nil {
			return fail
		}
		c.is = is
		return success
	}
	ctx = service.OneRequest(serving.WithRemote(serving.WithCaller(ctx, c.is), c.remote))
	left = service.SameRequest(serving.WithRemote(serving.WithCaller(left, c.is), c.remote), ctx)
	return commands[l.command](c, ctx, left, l)
}

// answer is an answer of the service.
type answer struct {
	status cluster.Status
	wire.Body
}

// isDenial reports whether a status says that the caller may not do this.
func isDenial(s cluster.Status) bool {
	return s == cluster.StatusPermissionDenied || s == cluster.StatusUnauthenticated
}

// refused returns the answer to a line whose call was not executed, or perhaps was.
func (a *answer) refused() string {
	switch {
	case a.status == cluster.StatusInvalidArgument:
		return invalidFormat // a TTL that the servers do not give
	case isDenial(a.status):
		return denied
	case a.status == cluster.StatusLimited:
		return limited
	}
	return failed
}

// call executes a request with these fields, and notes the LSN of its answer.
func (c *caller) call(ctx context.Context, name string, fields map[string]any) answer {
	body, err := json.Marshal(fields)
	if err != nil { // strings and numbers
		panic(fmt.Sprintf("encode %v: %v", fields, err))
	}
	r := c.s.Call(ctx, name, body)
	a := answer{status: r.Status}
	if err := json.Unmarshal(r.Body, &a.Body); err != nil {
		return answer{status: cluster.StatusUnknown}
	}
	c.seen = max(c.seen, a.LSN)
	// Not every answer has an LSN, but a token is that of its grant, unless it came with the line.
	if a.status == cluster.StatusOK {
		c.seen = max(c.seen, a.Token)
	}
	if a.Holder != nil {
		c.seen = max(c.seen, uint64(a.Holder.Token))
	}
	return a
}

// quick is call for what does not wait in line.
func (c *caller) quick(ctx context.Context, name string, fields map[string]any) answer {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return c.call(ctx, name, fields)
}

// held returns the token under which the line's client holds its lock, 0 if it does not, or not
// under the token of the line. If refusal is not "", it is the answer.
func (c *caller) held(ctx context.Context, l *line) (token cluster.Token, refusal string) {
	// Any token will do: the answer has the holder of the lock.
	a := c.quick(ctx, "verify", map[string]any{"lock": l.lock, "token": max(l.token, 1)})
	var holder cluster.ClientID
	switch {
	case a.status == cluster.StatusOK:
		holder, token = cluster.ClientID(a.ClientID), cluster.Token(a.Token)
	case a.status != cluster.StatusInvalidToken:
		return 0, a.refused()
	case a.Holder != nil:
		holder, token = a.Holder.Client, a.Holder.Token
	}
	if holder != clientID(l.client, l.lock) || l.token != 0 && l.token != token {
		return 0, ""
	}
	return token, ""
}

// token returns the token under which the client holds its lock.
func (c *caller) token(ctx, _ context.Context, l *line) string {
	token, refusal := c.held(ctx, l)
	if refusal != "" || token == 0 {
		return cmp.Or(refusal, none)
	}
	return fmt.Sprint(token)
}

// unlock releases what the client holds now, and nothing that it or another client holds later.
func (c *caller) unlock(ctx, _ context.Context, l *line) string {
	asked := cluster.Token(0) // to be released, and not known what came of it, or ended
	over := success           // the answer, once that grant is over
	for range rounds {
		token, refusal := c.held(ctx, l)
		switch {
		case refusal != "":
			return refusal
		case asked != 0 && token != asked:
			return over
		case token == 0:
			return fail
		}
		a := c.quick(ctx, "release", map[string]any{
			"lock": l.lock, "token": token, "client_id": clientID(l.client, l.lock), "request_id": releaseID,
		})
		switch a.status {
		case cluster.StatusOK:
			return success
		case cluster.StatusInvalidToken:
			if asked == 0 {
				over = fail // it ended by itself, this moment
			}
			asked = token // and OWN is to know: the next look has an LSN
		case cluster.StatusUnknown:
			asked = token
		default:
			return a.refused()
		}
	}
	return failed
}

func (c *caller) renew(ctx, _ context.Context, l *line) string {
	token, refusal := c.held(ctx, l)
	if refusal != "" {
		return refusal
	}
	if token == 0 {
		return fail
	}
	reply, _ := c.keep(ctx, l, token)
	return reply
}

// keep renews a grant and returns the answer, FAIL where the lease is shorter than the line asks
// for; ended reports whether there was nothing to renew.
func (c *caller) keep(ctx context.Context, l *line, token cluster.Token) (reply string, ended bool) {
	a := c.quick(ctx, "renew", map[string]any{"lock": l.lock, "token": token})
	switch a.status {
	case cluster.StatusOK:
	case cluster.StatusInvalidToken:
		_, refusal := c.held(ctx, l) // has an LSN, so that OWN knows of the end
		return cmp.Or(refusal, fail), refusal == ""
	default:
		return a.refused(), false
	}
	ttl, err := time.ParseDuration(a.TTL)
	switch {
	case err != nil:
		return failed, false
	case ttl < l.ttl:
		return fail, false
	}
	return success, false
}

// own returns the holder by this server's table, once that has what the connection knows.
func (c *caller) own(ctx, _ context.Context, l *line) string {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		r, err := c.s.Lock(ctx, &pb.GetLockRequest{Lock: string(l.lock), MinLsn: c.seen})
		switch {
		case err != nil:
			return failed
		case isDenial(wire.FromStatus(r.GetStatus())):
			return denied
		case r.GetStatus() == pb.Status_STATUS_LIMITED:
			return limited
		case r.GetStatus() != pb.Status_STATUS_OK:
		case wire.Millis(r.GetAgeMs()) > maxAge:
			return failed
		case r.GetLock().GetGrant() == nil:
			return none
		default:
			return ownerOf(cluster.ClientID(r.GetLock().GetGrant().GetClientId()), l.lock)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return failed
		}
	}
}
