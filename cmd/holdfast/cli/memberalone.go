// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/alone"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
)

// removedBody is what member remove --volume tells, in JSON.
type removedBody struct {
	Status  string             `json:"status"`
	Volume  string             `json:"volume"`
	Version uint64             `json:"members_version"`
	Servers []cluster.ServerID `json:"servers"`
}

// removeOffline removes a server without any server.
func (a *app) removeOffline(ctx context.Context, dir string, change cluster.MemberChange) (err error) {
	if err := ownVolume(dir); err != nil {
		return err
	}
	f, err := osfs.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fmt.Fprintln(a.Stderr, "holdfast: looking for some seconds whether a server writes to the volume")
	list, err := alone.Remove(ctx, f, change, alone.Options{})
	if err != nil {
		return fmt.Errorf("volume %s: %w", dir, err)
	}
	b := removedBody{Status: cluster.StatusOK.String(), Volume: dir, Version: list.Version, Servers: list.Servers.IDs()}
	return a.print(b, func(w io.Writer) {
		fmt.Fprintf(w, "server %d is removed, for good; the servers are %v (version %d of the list)\n", change.Server.ID, b.Servers, b.Version)
	})
}
