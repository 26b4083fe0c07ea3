// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
)

// TestCallerOf wants the caller that was set last, and none where none was.
func TestCallerOf(t *testing.T) {
	if c := access.CallerOf(t.Context()); c != nil {
		t.Errorf("a context without a caller has %v", c)
	}
	alice := &access.Caller{Identity: "user:alice"}
	ctx := access.WithCaller(t.Context(), alice)
	if c := access.CallerOf(ctx); c != alice {
		t.Errorf("the caller is %v", c)
	}
	if c := access.CallerOf(access.WithCaller(ctx, nil)); c != nil || c.Name() != "" {
		t.Errorf("a call without a credential has %v", c)
	}
}
