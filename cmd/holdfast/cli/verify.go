// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

func (a *app) verifyCommand() *cobra.Command {
	var token uint64
	c := &cobra.Command{
		Use: "verify LOCK [--token N]", Short: "Say whether a token is the live one of its lock; it renews nothing",
		Long: `Say whether a token is the live one of its lock; it renews nothing. The exit code is 3
if it is not. The answer was true when the primary gave it and may have ended since:
a resource that must never take an old holder's word keeps the highest token it has seen.
One that only a holder alone may change takes no token of those that share the lock.`,
		Args: exactly("LOCK"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.mustToken(c, args[0], &token); err != nil {
				return err
			}
			q := &pb.VerifyRequest{Lock: args[0], Token: token}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) { return s.Verify(ctx, q) })
				if err != nil {
					return err
				}
				return a.answer(r, func(w io.Writer) {
					shared := ""
					if r.GetMode() == pb.Mode_MODE_SHARED {
						shared = ", one of those that share the lock"
					}
					fmt.Fprintf(w, "%s: token %d is live%s, %v left\n", args[0], token, shared, wire.Millis(r.GetTtlMs()))
				})
			})
		},
	}
	tokenFlag(c, &token, "the token to verify (default: that of the holdfast run above)")
	return c
}
