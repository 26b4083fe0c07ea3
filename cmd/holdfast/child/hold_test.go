// SPDX-License-Identifier: Apache-2.0

package child

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHoldTellsItsGuard which processes have the file, before anything is done under the lock: they
// may change their user as soon as they have it.
func TestHoldTellsItsGuard(t *testing.T) {
	f, o := openTemp(t)
	user, _ := readProcess(holder(t, f).Process.Pid)
	orders := filepath.Join(t.TempDir(), "orders")
	release := make(chan os.Signal, 1)
	release <- ReleaseSignal
	begun := false
	lost, err := Hold(full{}, HoldOptions{
		File: o, Guard: []string{"sh", "-c", "cat > " + orders}, Release: release,
		Begin: func() error {
			begun = true
			want := fmt.Sprintf("user %d %d\n", user.pid, user.start)
			for range 1000 { // the guard writes what it has read
				if text, _ := os.ReadFile(orders); strings.Contains(string(text), want) {
					return nil
				}
				<-time.After(10 * time.Millisecond)
			}
			text, err := os.ReadFile(orders)
			return fmt.Errorf("the guard was told %q (%v), and not %q", text, err, want)
		},
	})
	if !begun || lost != nil || err != nil {
		t.Errorf("begun %v, lost %v, error %v", begun, lost, err)
	}
}
