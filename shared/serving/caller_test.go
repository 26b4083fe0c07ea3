// SPDX-License-Identifier: Apache-2.0

package serving_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// TestCallerOf wants the caller that was set last, and none where none was.
func TestCallerOf(t *testing.T) {
	if c := serving.CallerOf(t.Context()); c != nil {
		t.Errorf("a context without a caller has %v", c)
	}
	alice := &access.Caller{Identity: "user:alice"}
	ctx := serving.WithCaller(t.Context(), alice)
	if c := serving.CallerOf(ctx); c != alice {
		t.Errorf("the caller is %v", c)
	}
	if c := serving.CallerOf(serving.WithCaller(ctx, nil)); c != nil || c.Name() != "" {
		t.Errorf("a call without a credential has %v", c)
	}
}
