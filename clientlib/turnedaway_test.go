// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-lock/holdfast/shared/wire/frames"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// What a server says before it says who it is, because it takes no plain text, is what the caller is told.
func TestTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &piped{serve: func(_ int, c net.Conn) bool {
			end, err := proto.Marshal(&pb.SessionResponse{End: &pb.ErrorDetail{Message: "TLS is required here"}})
			if err != nil {
				t.Error(err)
			}
			go c.Read(make([]byte, 1<<10))                   //nolint:errcheck // the client says something
			c.Write(frames.Append(nil, frames.Message, end)) //nolint:errcheck // the client would miss it
			c.Close()
			return true
		}}
		defer s.close()
		c, err := New(Options{Endpoints: []string{"h:1"}, Dialer: s.dial, Budget: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // the end of the test
		if _, err := c.Acquire(t.Context(), "a", AcquireOptions{}); err == nil || !strings.Contains(err.Error(), "h:1: TLS is required here") {
			t.Error(err)
		}
	})
}
