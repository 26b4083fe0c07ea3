// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// PassedOnKey is the metadata of a gRPC call that uses a token on purpose which another
// client got. Without it a named client that has not opened its name may use its own tokens only.
const PassedOnKey = "holdfast-passed-on"

// PassedOn marks the calls made with ctx so.
func PassedOn(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, PassedOnKey, "1")
}
