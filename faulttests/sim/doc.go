// SPDX-License-Identifier: Apache-2.0

// Package sim runs the production code of primary, wal, volume and locktable on
// the simulated filesystem of volumetest, in virtual time.
//
// A Story is a volume with some history, clients that work on it until every
// one of their operations is acknowledged, and reigns that come, pause, die and
// wake up. The clients ask every reign there is, the stale ones too. When all
// is done, Verify begins one more reign and compares what clients were told
// with what is there.
package sim
