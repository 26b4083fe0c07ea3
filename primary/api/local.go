// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Local answers calls of this process with b, as a server does, without a connection. What
// it reads of the share may take this long.
func Local(b Backend, limit time.Duration) pb.LockServiceServer {
	s := newService(b)
	s.searchWait = limit
	return &grpcServer{s: s}
}
