// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// TestNameIsDialed: by the name in the endpoint, and not by what it resolves to, a certificate from outside is recognized.
func TestNameIsDialed(t *testing.T) {
	dialed := make(chan string, 100)
	c, err := remote.New(remote.Options{Endpoints: []string{"https://localhost:7601"}, Budget: time.Millisecond, Dial: func(_ context.Context, addr string) (net.Conn, error) {
		select {
		case dialed <- addr:
		default:
		}
		return nil, errors.New("nobody is there")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is in flight
	_, err = remote.Read(t.Context(), c, func(ctx context.Context, s pb.LockServiceClient) (*pb.StatusResponse, error) {
		return s.Status(ctx, &pb.StatusRequest{})
	})
	if err == nil {
		t.Error("nobody is there, and that is no error")
	}
	if addr := <-dialed; addr != "localhost:7601" {
		t.Errorf("dialed %s", addr)
	}
}
