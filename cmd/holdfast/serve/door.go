// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"net"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
)

// Door is an additional front end that CLUSTER does not list, so other servers do not know it.
type Door struct {
	Name string // for people
	Addr string // the host and port to listen on
	New  func(*httpapi.Door, zerolog.Logger) Front
}

// Front is a front end that serves one listener.
type Front interface {
	// Serve serves until Stop is called or it cannot go on. It always returns an error.
	Serve(net.Listener) error
	// Stop ends it: calls in flight may be answered until ctx ends. It may be called
	// before Serve.
	Stop(ctx context.Context)
}
