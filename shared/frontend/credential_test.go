// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/frontend/fronttest"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// A server that does not ask for credentials serves clients that show one, over sessions and gRPC.
func TestCredentialThatNobodyAskedFor(t *testing.T) {
	b := startPrimary(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fronttest.Serve(l, service.New(b, service.Options{}))
	defer port.Close()
	c, err := clientlib.New(clientlib.Options{Endpoints: []string{l.Addr().String()}, Credential: func(context.Context, string) (string, error) {
		return "hfk_any", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	held, err := c.Acquire(t.Context(), "a", clientlib.AcquireOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.List(t.Context(), "") { // over gRPC
		if err != nil {
			t.Error(err)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}

	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := []byte(frames.Preface)
	status, _ := proto.Marshal(&pb.StatusRequest{})
	for _, m := range []struct {
		kind frames.Kind
		m    proto.Message
	}{
		{frames.Settings, &pb.Settings{Version: frames.Version, Credential: "hfk_any"}},
		{frames.Message, &pb.SessionRequest{Credential: "hfk_another"}},
		{frames.Message, &pb.SessionRequest{Calls: []*pb.Call{{Correlation: 7, Method: "Status", Request: status}}}},
	} {
		text, err := proto.Marshal(m.m)
		if err != nil {
			t.Fatal(err)
		}
		out = frames.Append(out, m.kind, text)
	}
	if _, err := conn.Write(out); err != nil {
		t.Fatal(err)
	}
	r := frames.NewReader(conn, 1<<20)
	for {
		kind, text, _, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		m := &pb.SessionResponse{}
		if kind != frames.Message {
			continue
		}
		if err := proto.Unmarshal(text, m); err != nil || len(m.GetReturns()) != 1 || m.GetReturns()[0].GetCorrelation() != 7 {
			t.Errorf("%v, %v", m, err)
		}
		return
	}
}
