// SPDX-License-Identifier: Apache-2.0

// Package bench measures lock services: a driver that is the same for all of
// them, what it counted as rows, and the rows as a table or as JSON.
//
// # Loops
//
// A Load without a Rate is a closed loop: each worker asks again when it was
// answered. A service that stalls is then asked less while it stalls, so the
// percentiles tell how long an answer took, not how long a user who came at a
// moment of his own would have waited (coordinated omission). Compare closed loops
// by their rates, and by their percentiles at the same number of workers.
//
// A Load with a Rate is an open loop: each operation has a moment at which it is
// due. One that could not begin then, because the worker still waited for the
// answer before, counts from when it was due. A worker that slept and was woken
// late counts from when it woke: that is the driver's fault, not the service's.
//
// # The driver
//
// Workers share nothing: each has its histograms and counters, merged when all have
// ended, and names made before the clock runs. What ends before the window or after
// it is not counted. The first error ends a load: a figure of a service that
// refuses is none.
//
// # Processor time
//
// Of the client it is that of this process. Of servers it is read from /proc, with
// children, in ticks of 10 ms.
package bench
