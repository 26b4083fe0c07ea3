// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"net"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// proofWait is how long a connection may go on without anybody having proved on it who he is, where the rules
	// demand that.
	proofWait = 15 * time.Second
	// loginWait is how much longer it may, once, if a login has begun on it: as long as what that began with counts.
	loginWait = 30 * time.Second
	// partingWait is how long a front end may take to end such a connection with a word to its client.
	partingWait = 3 * time.Second
)

// DemandIdentity has connections close on which nobody proves in time who he is, while demand returns true. It is called
// before Serve, and demand by several goroutines.
func (p *Port) DemandIdentity(demand func() bool) { p.demand = demand }

func (p *Port) demands() bool { return p.demand != nil && p.demand() }

// unproven is a connection on which nobody may have proved who he is.
type unproven struct {
	from  serving.KnownAddr
	conn  net.Conn
	port  *Port
	proof serving.Proof

	mu struct {
		sync.Mutex
		timer         *time.Timer
		stopped       bool
		patient, told bool // it got loginWait; it is being ended
	}
}

// unproven returns where a connection is from, and closes it in time. It returns nil where nothing is ever demanded.
func (p *Port) unproven(c net.Conn) *unproven {
	if p.demand == nil {
		return nil
	}
	u := &unproven{conn: c, port: p}
	if known, ok := c.RemoteAddr().(*serving.KnownAddr); ok {
		u.from = *known
	} else {
		u.from.Addr = c.RemoteAddr()
	}
	if u.from.Proof = &u.proof; u.from.Caller != nil {
		serving.Prove(&u.from)
	} else {
		u.mu.Lock() // the timer may be over before it is noted
		defer u.mu.Unlock()
		u.mu.timer = time.AfterFunc(proofWait, u.look)
	}
	return u
}

// stop is called when the connection has ended. That of a nil one does nothing.
func (u *unproven) stop() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.stopped = true; u.mu.timer != nil {
		u.mu.timer.Stop()
	}
}

// look is called when the connection has had its time.
func (u *unproven) look() {
	if end := u.next(); end != nil {
		end()
	}
}

// next returns how the connection is to end now, nil if it goes on.
func (u *unproven) next() (end func()) {
	demanded := u.port.demands()
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.mu.stopped, u.proof.Given():
		return nil
	case !demanded: // the rules may change
		u.mu.timer.Reset(proofWait)
		return nil
	case !u.mu.patient && u.proof.LoginBegun():
		u.mu.patient = true
		u.mu.timer.Reset(loginWait)
		return nil
	}
	if n := u.port.unknown.Count(saidEvery); n > 0 {
		u.port.log.Warn().Int("closed", n).Stringer("from", &u.from).Msg("nobody has shown a credential on a connection in time: it is closed")
	}
	if end = u.proof.End(); end == nil || u.mu.told {
		return func() { u.conn.Close() } //nolint:errcheck // it had its time
	}
	u.mu.told = true
	u.mu.timer.Reset(partingWait)
	return end
}
