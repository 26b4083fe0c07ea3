// SPDX-License-Identifier: Apache-2.0

package conns

import (
	"errors"
	"net"
	"time"
)

const (
	// leastPause and mostPause bound the pause after the system had no connection for an Accept.
	leastPause = 5 * time.Millisecond
	mostPause  = time.Second
)

// AcceptAll gives each connection that l accepts to take, which does not wait for it to end, until l or stop is closed. It always returns an
// error that wraps net.ErrClosed. Other errors of l may go by themselves, such as too many open files: it tells failed of them and of
// the pause that follows, and tries again.
func AcceptAll(l net.Listener, stop <-chan struct{}, failed func(err error, pause time.Duration), take func(net.Conn)) error {
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			take(c)
			continue
		case errors.Is(err, net.ErrClosed):
			return err
		}
		pause = min(max(2*pause, leastPause), mostPause)
		failed(err, pause)
		select {
		case <-time.After(pause):
		case <-stop:
			return net.ErrClosed
		}
	}
}
