// SPDX-License-Identifier: Apache-2.0

// Package watch keeps a copy of the locks of a cluster up to date in a program.
//
//	jobs := watch.NewMirror(client, watch.Options{Prefix: "jobs/"})
//	go jobs.Run(ctx)
//	err := jobs.WaitUntil(ctx, func(v watch.View) bool { return v.Len() == 0 })
//
// A Mirror applies the events of a watch, so that reading it costs no call: Get, All and View
// show the state, WaitUntil waits for one, and Changes yields what changed. To handle the events
// one by one, use Client.Watch itself.
package watch
