// SPDX-License-Identifier: Apache-2.0

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/leader"
)

// connect is clientlib.New, with a server that lives as long as the example.
func connect() (c *clientlib.Client, end func()) {
	w := newWorld()
	return w.process(clientlib.Options{}).c, w.end
}

// A service of which one process at a time does the work.
func Example() {
	client, end := connect()
	defer end()
	e, err := leader.NewElection(client, "billing/leader", leader.Options{TTL: 15 * time.Second, Value: "http://h1:8080"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	err = e.Run(ctx, func(ctx context.Context, l *leader.Leadership) error {
		// Whatever is written as a leader is written under the token.
		receipt, err := l.Lock().Append(ctx, "billing/audit.log", []byte("leading\n"))
		if err != nil {
			return err
		}
		fmt.Println("leading, the first line has", receipt.Length, "bytes")
		stop()
		<-ctx.Done() // stop what a leader does, and return
		return nil
	})
	fmt.Println("ended:", err)
	// Output:
	// leading, the first line has 8 bytes
	// ended: context canceled
}

// The steps of Run one by one.
func ExampleElection_Campaign() {
	client, end := connect()
	defer end()
	ctx := context.Background()
	e, err := leader.NewElection(client, "billing/leader", leader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	l, err := e.Campaign(ctx, "warming up")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Proclaim(ctx, "http://h1:8080"); err != nil {
		log.Fatal(err)
	}
	current, err := e.Leader(ctx)
	fmt.Println(current.Value, current.Token == l.Token(), err)

	// Until l.Context() ends, this process leads.
	if err := l.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = e.Leader(ctx)
	fmt.Println(err, errors.Is(context.Cause(l.Context()), leader.ErrResigned))
	// Output:
	// http://h1:8080 true <nil>
	// nobody leads true
}

// A client of the leader, which follows it wherever it goes.
func ExampleElection_Observe() {
	client, end := connect()
	defer end()
	e, err := leader.NewElection(client, "billing/leader", leader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for current, err := range e.Observe(context.Background()) {
		if err != nil {
			log.Fatal(err) // no server answers
		}
		if current.Present() {
			fmt.Println("send requests to", current.Value)
			break
		}
		fmt.Println("nobody leads")
		go e.Campaign(context.Background(), "http://h1:8080") //nolint:errcheck // it is seen
	}
	// Output:
	// nobody leads
	// send requests to http://h1:8080
}
