// SPDX-License-Identifier: Apache-2.0

// Package traffic is the load of fault tests: workers append a text to
// protected files, for the ledger; lockers use every operation on locks, and record
// histories for porcupine.
package traffic
