// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// The names on the volume. See the package doc for what each one is.
const (
	clusterName  = "CLUSTER"
	epochsDir    = "epochs"
	filesDir     = "files"
	historyDir   = "history"
	serversDir   = "servers"
	fenceName    = "fence"
	claimName    = "claim.json"
	stateName    = "lock_state.json"
	requestsName = "processed_requests.log"

	checkpointPrefix = "checkpoint-"
	tmpSuffix        = ".tmp"
	claimSuffix      = ".claim"
	trashSuffix      = ".trash"
)

// Sizes on the volume, in bytes.
const (
	// fenceSpacing keeps the flag and START in different pages, blocks and stripes.
	fenceSpacing = 64 << 10
	fenceSize    = 2 * fenceSpacing
	// SegmentSize is the size of a log segment. A takeover copies the open one,
	// so its size is on the way of every failover; closed ones are linked.
	SegmentSize = 16 << 20
	// FirstSegmentSize is the size of the segment inside a prepared claim. It
	// takes the copy of any open segment, so a takeover makes no new file.
	FirstSegmentSize = SegmentSize
	// reserveSize is given back when the disk is full, so that a claim can still
	// be prepared: it has room for one.
	reserveSize = FirstSegmentSize + 1<<20
)

func epochDir(e cluster.Epoch) string { return fmt.Sprintf("%s/%010d", epochsDir, uint64(e)) }

// parseEpoch reads the name of an epoch's directory.
func parseEpoch(name string) (cluster.Epoch, bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	if err != nil || fmt.Sprintf("%010d", n) != name {
		return 0, false
	}
	return cluster.Epoch(n), true
}

func checkpointDir(lsn cluster.LSN) string {
	return checkpointPrefix + strconv.FormatUint(uint64(lsn), 10)
}

// parseCheckpoint reads the name of a complete checkpoint.
func parseCheckpoint(name string) (cluster.LSN, bool) {
	digits, ok := strings.CutPrefix(name, checkpointPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || checkpointDir(cluster.LSN(n)) != name {
		return 0, false
	}
	return cluster.LSN(n), true
}

// ProtectedPath is where a protected file lies on the volume.
func ProtectedPath(n cluster.FileName) string { return path.Join(filesDir, string(n)) }

func serverPrefix(id cluster.ServerID) string { return strconv.Itoa(int(id)) + "." }
