// SPDX-License-Identifier: Apache-2.0

// Package layout defines the names and sizes of files and directories on the volume, and
// the error for a volume that contradicts itself.
package layout

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// ErrDamaged means that the volume contradicts itself: no server may begin a term
// until an operator has examined it. The wrapping error names the file.
var ErrDamaged = errors.New("the volume is damaged")

// The names on the volume. The documentation of package volume describes each one.
const (
	ClusterName = "CLUSTER"
	MembersName = "MEMBERS"
	EpochsDir   = "epochs"
	FilesDir    = "files"
	HistoryDir  = "history"
	IndexDir    = "index"
	ServersDir  = "servers"
	SecretsDir  = "secrets"
	AccessDir   = "access"
	LoginDir    = "login"
	AuditDir    = "audit"

	// AuthorityName is the certificate by which clients know the servers, AuthorityKeyName, in secrets/, its key. Names of
	// later keys have their number between AuthorityPrefix and AuthoritySuffix.
	AuthorityName    = "ca.crt"
	AuthorityKeyName = "ca.key"
	AuthorityPrefix  = "ca-"
	AuthoritySuffix  = ".key"
	// SecretsClusterName, in secrets/, has the ID of the cluster, where the secrets are not on the volume.
	SecretsClusterName = "cluster"
	// SigningPublicName has the public halves of the signing keys. SigningKeyName, in secrets/, is the first of these;
	// names of later ones have the key's ID between SigningPrefix and SigningSuffix.
	SigningPublicName = "keys.json"
	SigningKeyName    = "signing.key"
	SigningPrefix     = "signing-"
	SigningSuffix     = ".key"

	// In an epoch's directory.
	FenceName        = "fence"
	FencedName       = "fenced.json"
	ClaimName        = "claim.json"
	CheckpointPrefix = "checkpoint-"

	// The two files of a checkpoint, and the two views.
	StateName    = "lock_state.json"
	RequestsName = "processed_requests.log"

	// In servers/, after ServerPrefix.
	CanarySuffix  = "canary"
	ProcessSuffix = "process"
	ClaimSuffix   = ".claim"
	// TLSRequiredName is the file in servers/ whose presence has servers refuse each other without TLS.
	TLSRequiredName = "tls-required"
	// ClientTLSRequiredName is the file in servers/ whose presence has servers refuse clients of other hosts without TLS.
	ClientTLSRequiredName = "client-tls-required"
	// InitPrefix and RecoverPrefix begin the names in servers/ of what an init or a recovery builds,
	// until it is renamed or linked.
	InitPrefix    = "init-"
	RecoverPrefix = "recover-"
	// PublicPrefix begins those of what is linked into the volume's directory beside secrets.
	PublicPrefix = InitPrefix + "public-"

	// Files and directories that are being built, and directories that are being removed.
	TmpSuffix   = ".tmp"
	TrashSuffix = ".trash"
)

// Format is the format of CLUSTER and of checkpoints. A volume with another one is refused.
const Format = 1

// Sizes on the volume, in bytes.
const (
	// FenceSpacing is the offset of START in a fence: the flag and START lie in different pages, blocks and stripes.
	FenceSpacing = 64 << 10
	// FenceSize is the size of a fence's file.
	FenceSize = 2 * FenceSpacing
	// SegmentSize is the size of a log segment. A takeover copies the records of the open segment,
	// so this size bounds the time of a failover; closed segments are linked.
	SegmentSize = 16 << 20
	// FirstSegmentSize is the size of the segment in a prepared claim. The copy of any open
	// segment fits into it, so a takeover creates no new segment.
	FirstSegmentSize = SegmentSize
	// ReserveSize is the size of the reserve, which is removed when the disk is full, so that a claim can still
	// be prepared: it is as large as one.
	ReserveSize = FirstSegmentSize + 1<<20
)

// EpochDir returns the path of an epoch's directory.
func EpochDir(e cluster.Epoch) string { return fmt.Sprintf("%s/%010d", EpochsDir, uint64(e)) }

// ParseEpoch returns the epoch whose directory has this name; false for any other name.
func ParseEpoch(name string) (cluster.Epoch, bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	if err != nil || fmt.Sprintf("%010d", n) != name {
		return 0, false
	}
	return cluster.Epoch(n), true
}

// CheckpointDir returns the name of the checkpoint at lsn, in the directory of its epoch.
func CheckpointDir(lsn cluster.LSN) string {
	return CheckpointPrefix + strconv.FormatUint(uint64(lsn), 10)
}

// ParseCheckpoint returns the LSN of the checkpoint whose directory has this name; false for any other name.
func ParseCheckpoint(name string) (cluster.LSN, bool) {
	digits, ok := strings.CutPrefix(name, CheckpointPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || CheckpointDir(cluster.LSN(n)) != name {
		return 0, false
	}
	return cluster.LSN(n), true
}

// ServerPrefix returns what the names of a server's files in servers/ begin with.
func ServerPrefix(id cluster.ServerID) string { return strconv.Itoa(int(id)) + "." }

// ParseServerName returns the server whose file in servers/ has this name, and what follows its ServerPrefix; false for any other name.
func ParseServerName(name string) (id cluster.ServerID, rest string, ok bool) {
	digits, rest, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(digits, 10, 32)
	id = cluster.ServerID(n)
	return id, rest, err == nil && id != 0 && name == ServerPrefix(id)+rest
}

const rulesSuffix = ".toml"

// RulesName returns the name in access/ of a version of the access rules.
func RulesName(version uint64) string { return fmt.Sprintf("%010d%s", version, rulesSuffix) }

// ParseRules returns the version of the access rules that has this name in access/; false for any other name.
func ParseRules(name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(name, rulesSuffix), 10, 64)
	if err != nil || n == 0 || RulesName(n) != name {
		return 0, false
	}
	return n, true
}
