// SPDX-License-Identifier: Apache-2.0

// Package fault injects faults into real servers; package check compares the answers of
// clients with the files.
//
// The tests need minutes, so all but a smoke test require -faults:
//
//	go test ./faulttests/fault -faults
//	go test ./faulttests/fault -faults -run MainScenario -faults.kills 100 -v
//	go test ./faulttests/fault -faults -run MainScenario -faults.duration 1h -timeout 0 -v
//
// TestRollingUpgrade builds the binary of an earlier revision, so it needs git and the history of the repository.
//
// TestUpgradeToTLS needs a binary from before there was TLS between servers:
//
//	go test ./faulttests/fault -faults -run UpgradeToTLS -faults.old /path/to/holdfast -v
package fault
