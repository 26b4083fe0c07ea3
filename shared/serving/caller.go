// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"

	"github.com/holdfast-lock/holdfast/shared/access"
)

type callerKey struct{}

// WithCaller returns a context of a call by c. Only a server's own code that knows the caller of a connection calls it;
// nil is a caller without a credential.
func WithCaller(ctx context.Context, c *access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// WithCallers is WithCaller for what lasts: its caller may show other credentials meanwhile, and current returns it with the
// one that it showed last. It is called by any goroutine.
func WithCallers(ctx context.Context, current func() *access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, current)
}

// CallerOf returns the caller that a call is from, nil if it has no credential.
func CallerOf(ctx context.Context) *access.Caller {
	switch c := ctx.Value(callerKey{}).(type) {
	case *access.Caller:
		return c
	case func() *access.Caller:
		return c()
	}
	return nil
}
