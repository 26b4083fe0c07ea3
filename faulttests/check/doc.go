// SPDX-License-Identifier: Apache-2.0

// Package check gives the verdicts: it judges what clients were told, and what
// lies on the volume, against what Holdfast promises.
//
// Judge compares protected files with a Ledger; LockModel has porcupine decide
// about a History. The package's own tests damage a right run in every way that
// matters and want each damage noticed.
package check
