// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/watch"
)

// Who does what, kept up to date, and a wait for a state.
func ExampleMirror() {
	var c *clientlib.Client // see the example of clientlib
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := watch.NewMirror(c, watch.Options{Prefix: "jobs/"})
	go func() {
		if err := m.Run(ctx); ctx.Err() == nil {
			log.Print(err) // no server answered for long
		}
	}()
	idle := func(v watch.View) bool {
		for l := range v.All() {
			if l.Held() {
				return false
			}
		}
		return true
	}
	if err := m.WaitUntil(ctx, idle); err != nil {
		log.Fatal(err)
	}
	fmt.Println("nobody worked at LSN", m.LSN())
	for change, err := range m.Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(change.Lock.Name, "is held by", change.Lock.Holder.Client, "and", change.Lock.QueueLength, "wait")
	}
}
