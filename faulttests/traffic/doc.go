// SPDX-License-Identifier: Apache-2.0

// Package traffic is what clients do in fault tests: workers append a text to
// protected files, for the ledger; lockers make histories for porcupine out of
// every operation on locks.
package traffic
