// SPDX-License-Identifier: Apache-2.0

// Package sim runs the production code of primary, wal, volume and locktable on
// the simulated filesystem of volumetest, in virtual time.
//
// A Scenario is a volume with some history, clients that work on it until every
// one of their operations is acknowledged, and terms that begin, pause, die and
// wake up. The clients send their requests to every term, also to stale ones. At the
// end, Verify begins one more term and compares its state with the answers that clients got.
package sim
