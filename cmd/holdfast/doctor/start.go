// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path/filepath"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// AtStart is what a server looks at before it opens its volume: the mount, and
// the calls on which a reign rests, each tried once. It takes some milliseconds
// on a local disk. On a full disk nothing is tried and nothing refused.
//
// It writes under servers/, to a name of the server's own that ends like those of
// claims to be thrown away: what a killed process leaves there, the next one removes.
func AtStart(dir string, id cluster.ServerID) (*Report, error) {
	mounts, err := readMounts("")
	if err != nil {
		return nil, err
	}
	r, err := look(dir, mounts, Options{})
	if err != nil {
		return nil, err
	}
	r.probe(filepath.Join(r.Path, "servers"), fmt.Sprintf("%d.start-*.trash", id))
	return r, nil
}
