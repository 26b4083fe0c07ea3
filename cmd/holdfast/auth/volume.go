// SPDX-License-Identifier: Apache-2.0

//go:build linux

package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/secrets"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

// OperatorTime is how long a ticket counts that an operator's process signs itself for what it is about to do.
const OperatorTime = 5 * time.Minute

// ErrNotOperator means that this user cannot read the secrets of a volume, or that it has none.
var ErrNotOperator = errors.New("the signing key of the volume cannot be read: only the user that the servers run as can")

// Ticket is a ticket with what it says.
type Ticket struct {
	Text    string
	Cluster cluster.ID
	Caller  *access.Caller
}

// OperatorTicket signs a ticket of an operator for the user of this process, who has to be able to read the secrets of
// the volume in dir, or in the directory of secrets, "" = none is named. It counts for this long from now. Returns ErrNotOperator if the user cannot read them.
func OperatorTicket(dir, secretsDir string, now time.Time, period time.Duration) (t Ticket, err error) {
	f, err := secrets.Open(dir, secretsDir)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	about, err := volume.ReadCluster(f)
	if err != nil {
		return t, err
	}
	keys, err := volume.ReadSigningKeys(f)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, volume.ErrNoSigningKey) || errors.Is(err, volume.ErrSecretsElsewhere) {
		return t, fmt.Errorf("%w: %w", ErrNotOperator, err)
	}
	if err != nil {
		return t, err
	}
	t.Cluster = about.ID
	t.Caller = &access.Caller{Identity: "user:" + UserName(), Via: "volume", Issued: now, Expires: now.Add(period), Operator: true}
	t.Text, err = Sign(volume.KeysAt(keys, now)[0], t.Cluster, t.Caller)
	return t, err
}

// UserName returns the name of the user of this process, or its number where it has none.
func UserName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}
