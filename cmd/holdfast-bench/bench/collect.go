// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"runtime/debug"
)

// CollectRarely lets the heap of this program grow to five times what is live before
// it is collected: the driver shares the processors with what it measures. It is the
// same whatever is measured, and GOGC overrules it.
func CollectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
