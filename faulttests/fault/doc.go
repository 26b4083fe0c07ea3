// SPDX-License-Identifier: Apache-2.0

// Package fault puts real servers under faults; package check judges what
// clients were told against what is in the files.
//
// The tests need minutes, so all but a smoke test ask for -faults:
//
//	go test ./faulttests/fault -faults
//	go test ./faulttests/fault -faults -run MainScenario -faults.kills 100 -v
//	go test ./faulttests/fault -faults -run MainScenario -faults.duration 1h -timeout 0 -v
package fault
