// SPDX-License-Identifier: Apache-2.0

// Package fronttest serves, for tests, what the client library speaks: sessions and gRPC on one port,
// as a server does.
package fronttest

import (
	"net"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/shared/frontend/clientport"
	"github.com/holdfast-lock/holdfast/shared/frontend/grpcapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/session"
)

// Port serves a service on listeners. End it with Close.
type Port struct {
	port     *clientport.Port
	grpc     *grpc.Server
	sessions *session.Server
	all      sync.WaitGroup
}

// Serve serves s on l, until Close or until l is closed.
func Serve(l net.Listener, s *service.Service) *Port {
	p := older(l, s)
	p.sessions = session.New(s, zerolog.Nop())
	p.all.Go(func() { p.sessions.Serve(p.port.Listener(clientport.Sessions)) }) //nolint:errcheck // it ends with the port
	return p
}

// ServeOlder serves s on l as a server does that knows no sessions on frames.
func ServeOlder(l net.Listener, s *service.Service, o ...grpc.ServerOption) *Port {
	p := older(l, s, o...)
	p.port.Listener(clientport.Sessions).Close() //nolint:errcheck // connections of that kind are closed
	return p
}

func older(l net.Listener, s *service.Service, o ...grpc.ServerOption) *Port {
	p := &Port{port: clientport.New(zerolog.Nop(), nil), grpc: grpc.NewServer(append(grpcapi.Options(), o...)...)}
	grpcapi.Register(p.grpc, s)
	p.all.Go(func() { p.port.Serve(l) })                                //nolint:errcheck // it ends with l
	p.all.Go(func() { p.grpc.Serve(p.port.Listener(clientport.GRPC)) }) //nolint:errcheck // it ends with Stop
	return p
}

// Close closes the listener and all connections, and waits for what served them.
func (p *Port) Close() {
	p.port.Close() //nolint:errcheck // what is closed already need not be closed
	if p.sessions != nil {
		p.sessions.Close()
	}
	p.grpc.Stop()
	p.all.Wait()
}
