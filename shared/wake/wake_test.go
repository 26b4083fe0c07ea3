// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wake"
)

// However often a goroutine is notified while it is busy, it looks once more.
func TestOneSignalIsPending(t *testing.T) {
	s := wake.NewSignal()
	for range 3 {
		s.Notify()
	}
	<-s
	select {
	case <-s:
		t.Error("a second signal is pending")
	default:
	}
	s.Notify()
	<-s
}
