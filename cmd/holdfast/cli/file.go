// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// onFile holds the flags of one `holdfast file …`.
type onFile struct {
	lock  string
	file  string
	token uint64
	lease lease
	id    identity
	adopt bool
	// volume is the volume on which rotate moves the old generation away itself, "" if the user
	// did, and kept the name that the generation has there afterwards.
	volume string
	kept   cluster.FileName
}

func (a *app) fileCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "file", Short: "Bind protected files to locks, seal and rotate them", Args: unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	rotate, y := a.fileVerb("rotate", "Continue in a new, empty file of the same name, also after a quarantine", "rotated",
		func(ctx context.Context, s pb.LockServiceClient, x *onFile, id identity, token uint64) (*pb.Answer, error) {
			return s.RotateFile(ctx, &pb.RotateFileRequest{ClientId: id.client, RequestId: id.request, Lock: x.lock, Token: token, File: x.file})
		})
	rotate.Long = `Continue in a new, empty file of the same name. Move the old one away first: servers never
rename or remove a protected file. With --volume, on a host that has the share,
this command does it while it holds the lock: generation N of FILE is kept as FILE.gN.`
	rotate.Flags().StringVar(&y.volume, "volume", "", "the volume's directory: keep the old generation there as FILE.gN")
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
	seal, _ := a.fileVerb("seal", "End a file: nothing is appended to it any more", "sealed",
		func(ctx context.Context, s pb.LockServiceClient, x *onFile, id identity, token uint64) (*pb.Answer, error) {
			return s.SealFile(ctx, &pb.SealFileRequest{ClientId: id.client, RequestId: id.request, Lock: x.lock, Token: token, File: x.file})
		})
	seal.Long = "End a file: no client can ever append to this generation again.\nEvery byte is durable when the command returns. After a rotation the name takes appends again."
	c.AddCommand(rotate, bind, unbind, seal, a.filesCommand())
	return c
}

// keptBody is an answer with the name of the generation that was moved away.
type keptBody struct {
	wire.Body
	Kept string `json:"kept,omitempty"`
}

// keep moves the present generation away, if --volume names a volume.
func (x *onFile) keep(ctx context.Context, c *remote.Caller) (err error) {
	if x.volume == "" {
		return nil
	}
	r, err := remote.Read(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.GetLockResponse, error) {
		return s.GetLock(ctx, &pb.GetLockRequest{Lock: x.lock, PrimaryOnly: true})
	})
	if err != nil {
		return err
	}
	for _, f := range r.GetLock().GetFiles() {
		if f.GetName() != x.file {
			continue
		}
		fsys, err := osfs.Open(x.volume)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, fsys.Close()) }()
		x.kept, err = volume.KeepGeneration(fsys, cluster.FileName(x.file), cluster.Generation(f.GetGeneration()), f.GetInode())
		return err
	}
	return usagef("file %q is not bound to lock %q", x.file, x.lock)
}

func (a *app) filesCommand() *cobra.Command {
	var stale bool
	c := &cobra.Command{
		Use: "ls [PREFIX]", Short: "List the protected files", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			all, err := a.filesEverywhere(c.Context(), prefix, stale)
			if err != nil {
				return err
			}
			return a.print(all, func(w io.Writer) { filesText(w, all.Files) })
		},
	}
	c.Flags().BoolVar(&stale, "stale", false, "take any server's answer, which may be old (the age field says how old)")
	return c
}

func filesText(w io.Writer, files []wire.FileBody) {
	table(w, func(row func(...any)) {
		row("FILE", "LOCK", "GENERATION", "BYTES", "LAST LSN", "STATE")
		for _, f := range files {
			state := "open"
			switch {
			case f.Quarantined:
				state = "QUARANTINED: " + f.Reason
			case f.Sealed:
				state = "sealed"
			}
			row(f.File, f.Lock, f.Generation, f.End, f.LastLSN, state)
		}
	})
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
			var err error
			if x.token, err = a.ownToken(c, x.lock, x.token); err != nil {
				return err
			}
			return a.atName(c.Context(), x.lock, func(ctx context.Context, c *remote.Caller) error {
				id := a.identify(x.id)
				return a.withToken(ctx, c, x.lock, x.token, &x.lease, func(token uint64) error {
					if err := x.keep(ctx, c); err != nil {
						return err
					}
					r, err := remote.Write(ctx, c, func(ctx context.Context, s pb.LockServiceClient) (*pb.Answer, error) {
						return send(ctx, s, x, id, token)
					})
					if err != nil {
						return err
					}
					text := func(w io.Writer) {
						fmt.Fprintf(w, "%s: %s, generation %d, lock %s\n", x.file, done, r.GetReceipt().GetGeneration(), x.lock)
					}
					if x.kept == "" {
						return a.answer(r, text)
					}
					return a.print(keptBody{wire.BodyOf(r), string(x.kept)}, func(w io.Writer) {
						text(w)
						fmt.Fprintf(w, "the generation before is kept as %s\n", x.kept)
					})
				})
			})
		},
	}
	c.Flags().StringVar(&x.lock, "lock", "", "the lock that guards the file")
	tokenFlag(c, &x.token, "the token of the lock (default: that of the holdfast run above, else get the lock for this)")
	x.lease.flags(c.Flags(), "1m")
	x.id.flags(c.Flags())
	required(c, "lock")
	return c, x
}
