// SPDX-License-Identifier: Apache-2.0

// Package bench measures lock services: it has a driver that is the same for all of
// them, and reports the results as rows, in a table or as JSON.
//
// # Loops
//
// A Load without a Rate is a closed loop: each worker sends its next request after the
// answer to the previous one. A service that stalls gets fewer requests meanwhile, so the
// percentiles are how long an answer took, not how long a user that arrives at any
// moment would have waited (coordinated omission). Compare closed loops
// by their rates, and by their percentiles at the same number of workers.
//
// A Load with a Rate is an open loop: each operation is due at a given time. One that could
// not begin then, because the worker still waited for the previous
// answer, counts from when it was due. A worker that slept and was woken
// late counts from when it woke: that is the driver's fault, not the service's.
//
// # The driver
//
// Workers share nothing: each has its histograms and counters, merged when all have
// ended, and names made before the clock runs. Operations that end before the window or after
// it are not counted. The first error ends a load: figures of a service that
// refuses requests mean nothing.
//
// # Processor time
//
// For the client it is that of this process. For servers it is read from /proc, including
// children, in ticks of 10 ms.
package bench
