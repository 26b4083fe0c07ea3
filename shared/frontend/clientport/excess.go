// SPDX-License-Identifier: Apache-2.0

package clientport

import (
	"net"
	"time"
)

// maxExcess bounds the connections at a time that are asked what they speak although there is no room for them: they
// use descriptors, and handshakes.
const maxExcess = 16

// Excess is a connection for which there is no room. A listener that Serve is called with accepts some of them: they are
// closed, and a client library is told when to come again.
type Excess struct{ net.Conn }

// turnBack closes a connection for which there is no room.
func (p *Port) turnBack(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || len(p.mu.excess) >= maxExcess {
		c.Close() //nolint:errcheck // nothing was said on it
		return
	}
	p.mu.excess[c] = struct{}{}
	p.telling.Go(func() {
		over := time.Now().Add(refusalWait)
		_ = c.SetDeadline(over) // what is closed needs none
		spoken, first, class, err := listen(c)
		if class == overTLS && err == nil {
			spoken, _, class, err = p.inside(withFirst(spoken, first, nil, nil, nil), over)
		}
		if err == nil {
			sayComeAgain(spoken, class)
		}
		c.Close() //nolint:errcheck // it is not served
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.mu.excess, c)
	})
}
