// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary/api"
)

// Door is a front end that CLUSTER does not name. The other servers do not know of it.
type Door struct {
	Name string // for people
	Addr string // the host and port to listen on
	New  func(*api.Door, zerolog.Logger) Front
}

// Front is a front end.
type Front interface {
	// Serve serves until Stop is called, and then returns an error that says so, or
	// until it cannot go on.
	Serve(net.Listener) error
	// Stop ends it: calls in flight may have their answers until ctx ends, and no
	// longer. It may come before Serve.
	Stop(ctx context.Context)
}
