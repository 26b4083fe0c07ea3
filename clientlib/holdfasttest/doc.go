// SPDX-License-Identifier: Apache-2.0

// Package holdfasttest runs Holdfast inside a test: the servers are those of the product, in the process of the test,
// on a filesystem in memory.
//
//	func TestNightlyJob(t *testing.T) {
//		s := holdfasttest.Start(t)
//		job := NewJob(s.Client())
//		go job.Run(t.Context())
//		…
//		s.Expire("nightly") // the lease of the job runs out
//		…
//	}
//
// A Server listens on a port of the loopback interface, so that other programs can use it, too: Endpoints is what
// HOLDFAST_ENDPOINTS, clientlib.Options and curl take. A test may have several; tests may run in parallel. What was
// started ends with the test, and the Clients that Client and NewClient made are closed.
//
// # What a test can do
//
// A program that uses a lock has to survive its loss. Expire and Break end a grant, each as the service would. Advance
// has leases run out without waiting for that. Pause makes the service silent, and CutOff one client; then that client
// notices by its own clock. Failover and Partition replace the server that answers: a correct program notices nothing
// but a delay.
//
// # What it is not
//
// The filesystem is a memory that syncs at once, so nothing here measures speed, and no data survive the test. It is
// for Linux and macOS.
//
// The package is under the promise of package clientlib. A program gets its dependencies by importing it, and not by
// importing clientlib.
package holdfasttest
