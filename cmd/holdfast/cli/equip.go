// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	rules "github.com/holdfast-lock/holdfast/cmd/holdfast/access"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/certs"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/osfs"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// equipment is what a new volume has from its first moment, so that no server of it ever serves without. Nil is the key
// that signs proofs only: plain text, and no access rules.
type equipment struct {
	// Policy is that of the first access rules; open ones are none.
	Policy string `json:"policy"`
	// Plain is true if clients of other hosts may speak plain text beside TLS.
	Plain bool `json:"plain"`
	// Logins is true if users log in by directories that they make on the volume.
	Logins bool `json:"logins"`
	// Private is true if nobody but its owner may look into the volume.
	Private bool `json:"private"`
	// Secrets is the directory of this host that the secrets are in, "" = they are on the volume.
	Secrets string `json:"secrets,omitempty"`
}

// flags are those of a command that makes volumes.
func (e *equipment) flags(c *cobra.Command) {
	c.Flags().StringVar(&e.Policy, "policy", rules.Team, "who may use it: team (everybody with a credential), strict (each a part of their own), open (everybody)")
	c.Flags().BoolVar(&e.Plain, "plain", false, "serve clients of other hosts in plain text, too; without --policy, everybody may do everything")
	c.Flags().BoolVar(&e.Logins, "logins", false, "let users log in by a directory that they make on the volume")
	c.Flags().BoolVar(&e.Private, "private", false, "let nobody but the servers' user look into the volume (mode 0700): other users can read protected files only through the servers, as the rules say")
}

// check completes what the flags of a command say, and refuses what contradicts itself.
func (e *equipment) check(c *cobra.Command) error {
	if e.Plain && !c.Flags().Changed("policy") {
		e.Policy = rules.Open
	}
	if _, err := rules.Policy(e.Policy); err != nil {
		return usagef("--policy: %v", err)
	}
	if e.Private && e.Logins {
		return usagef("--private and --logins: users log in by what they make on the volume, so they must be able to reach it; leave one of them out")
	}
	return nil
}

// errOtherInit means that an unfinished init is not what is to be repeated now.
var errOtherInit = errors.New("another init began here with other flags: repeat that one or empty the directory")

// add gives a volume that is being made what it is to have. It can be repeated.
func (e *equipment) add(f *osfs.FS, c volume.Cluster) error {
	if e == nil {
		return volume.OfferSigning(f, rand.Reader)
	}
	if err := e.publish(f); err != nil {
		return err
	}
	if err := e.requireTLS(f); err != nil {
		return err
	}
	if err := e.takeLogins(f); err != nil {
		return err
	}
	return offerTLS(f, c.ID)
}

func (e *equipment) requireTLS(f *osfs.FS) error {
	if !e.Plain {
		return volume.RequireClientTLS(f)
	}
	required, err := volume.ClientTLSRequired(f)
	if err == nil && required {
		err = errOtherInit
	}
	return err
}

func (e *equipment) takeLogins(f *osfs.FS) error {
	if e.Logins {
		return f.MkdirLogin(volume.LoginDir)
	}
	_, err := f.Lstat(volume.LoginDir)
	if err == nil {
		return errOtherInit
	}
	return vfs.IgnoreMissing(err)
}

func (e *equipment) publish(f *osfs.FS) error {
	there, text, err := rules.Newest(f)
	if err != nil {
		return err
	}
	if e.Policy == rules.Open {
		if there > 0 {
			return errOtherInit
		}
		return nil
	}
	want, err := rules.Policy(e.Policy)
	switch {
	case err != nil:
		return err
	case there == 0:
		return publishText(f, 0, want)
	case !bytes.Equal(text, want):
		return errOtherInit
	}
	return nil
}

// offerTLS gives a volume its certificate authority, and the key with which tickets are signed, unless it has them.
func offerTLS(fsys *osfs.FS, id cluster.ID) error {
	if _, err := volume.OfferTLS(fsys, rand.Reader, func() (volume.Authority, error) { return certs.Draw(id) }); err != nil {
		return fmt.Errorf("a certificate authority for clients: %w", err)
	}
	return nil
}
