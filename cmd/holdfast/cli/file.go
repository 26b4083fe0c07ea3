// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// onFile is one `holdfast file …`.
type onFile struct {
	lock  string
	file  string
	token uint64
	lease lease
	id    identity
	adopt bool
}

func (a *app) fileCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "file", Short: "Bind protected files to locks, and rotate them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	rotate, _ := a.fileVerb("rotate", "Go on in a new, empty file of the same name; a quarantined one goes on like that", "rotated",
		func(ctx context.Context, s pb.LockServiceClient, x *onFile, id identity, token uint64) (*pb.Answer, error) {
			return s.RotateFile(ctx, &pb.RotateFileRequest{ClientId: id.client, RequestId: id.request, Lock: x.lock, Token: token, File: x.file})
		})
	rotate.Long = "Go on in a new, empty file of the same name. Move the old one away first:\nHoldfast never renames or removes what it protects."
	bind, x := a.fileVerb("bind", "Let only the holder of a lock append to a file", "bound",
		func(ctx context.Context, s pb.LockServiceClient, x *onFile, id identity, token uint64) (*pb.Answer, error) {
			return s.BindFile(ctx, &pb.BindFileRequest{
				ClientId: id.client, RequestId: id.request, Lock: x.lock, Token: token, File: x.file, AdoptExisting: x.adopt,
			})
		})
	bind.Flags().BoolVar(&x.adopt, "adopt-existing", false, "take a file that is not empty and not bound to a lock yet")
	unbind, _ := a.fileVerb("unbind", "Let go of a file", "unbound",
		func(ctx context.Context, s pb.LockServiceClient, x *onFile, id identity, token uint64) (*pb.Answer, error) {
			return s.UnbindFile(ctx, &pb.UnbindFileRequest{ClientId: id.client, RequestId: id.request, Lock: x.lock, Token: token, File: x.file})
		})
	c.AddCommand(rotate, bind, unbind)
	return c
}

type fileCall func(ctx context.Context, s pb.LockServiceClient, x *onFile, id identity, token uint64) (*pb.Answer, error)

func (a *app) fileVerb(verb, short, done string, send fileCall) (*cobra.Command, *onFile) {
	x := &onFile{}
	c := &cobra.Command{
		Use: verb + " FILE --lock LOCK", Short: short, Args: exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			x.file = args[0]
			if err := firstError(x.lease.check(), x.id.check(), fileName(x.file)); err != nil {
				return err
			}
			return a.withCaller(c.Context(), func(ctx context.Context, c *remote.Caller) error {
				id := x.id.complete()
				return a.withToken(ctx, c, x.lock, x.token, &x.lease, func(token uint64) error {
					r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
						return send(ctx, s, x, id, token)
					})
					if err != nil {
						return err
					}
					return a.answer(r, func(w io.Writer) {
						fmt.Fprintf(w, "%s: %s, generation %d, lock %s\n", x.file, done, r.GetReceipt().GetGeneration(), x.lock)
					})
				})
			})
		},
	}
	c.Flags().StringVar(&x.lock, "lock", "", "the lock that guards the file")
	tokenFlag(c, &x.token, "the token of the lock (default: get the lock for this)")
	x.lease.flags(c.Flags(), "1m")
	x.id.flags(c.Flags())
	required(c, "lock")
	return c, x
}
