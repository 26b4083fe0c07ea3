// SPDX-License-Identifier: Apache-2.0

package wire

import "math"

// HeldUnsaid as KeepAliveRequest.held says nothing of what the client holds: it is
// renewed, and not listed.
const HeldUnsaid = math.MaxUint32 - 1
