// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

const (
	// askNext is how long a server may take to answer which server is primary before the next one is
	// asked too: a frozen server must not delay a command.
	askNext = 100 * time.Millisecond
	// locateTime bounds the whole search. It is worth the time, because a request that is sent to a
	// silent server may be executed there without an answer.
	locateTime = time.Second
)

// word is the answer of one server to the question which server is primary.
type word struct {
	addr  string
	reply *pb.StatusResponse // nil = no answer
}

// locate asks the servers which one is primary, and makes it the target. If none knows, the target
// is the first server that answered, or the first of all.
func (c *Caller) locate(ctx context.Context) {
	if c.located || len(c.opt.Endpoints) < 2 {
		return
	}
	c.located = true
	ctx, cancel := context.WithTimeout(ctx, locateTime)
	defer cancel()
	said := make(chan word, 1)
	known, asked, open, heard := append([]string(nil), c.opt.Endpoints...), 0, 0, ""
	next := func() {
		if asked < len(known) {
			c.askOne(ctx, known[asked], said)
			asked, open = asked+1, open+1
		}
	}
	next()
	tick := time.NewTicker(askNext)
	defer tick.Stop()
	for open > 0 {
		select {
		case <-tick.C:
			next()
			continue
		case <-ctx.Done():
			return
		case w := <-said:
			open--
			switch {
			case w.reply.GetRole() == pb.Role_ROLE_PRIMARY:
				c.target = w.addr
				return
			case w.reply != nil && heard == "":
				heard, c.target = w.addr, w.addr
			}
			if named := w.reply.GetPrimary().GetClient(); named != "" && !w.reply.GetGateway() {
				known = insertOnce(known, asked, named)
			}
			next()
		}
	}
}

// insertOnce inserts addr at position at, unless one of the addresses before is the same.
func insertOnce(known []string, at int, addr string) []string {
	for _, k := range known[:at] {
		if k == addr {
			return known
		}
	}
	return append(append(append([]string(nil), known[:at]...), addr), known[at:]...)
}

func (c *Caller) askOne(ctx context.Context, addr string, said chan<- word) {
	stub, err := c.stubOf(addr)
	if err != nil { // the call itself reports the error
		go func() { said <- word{addr: addr} }()
		return
	}
	go func() {
		r, err := stub.Status(ctx, &pb.StatusRequest{Local: true})
		if err != nil {
			r = nil
		}
		select {
		case said <- word{addr, r}:
		case <-ctx.Done():
		}
	}()
}
