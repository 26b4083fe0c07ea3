// SPDX-License-Identifier: Apache-2.0

// Command fencedstore is an example of a resource that Holdfast's locks protect
// although Holdfast does not know it: a small store of values over HTTP, which
// accepts a value only under the highest token that it has seen for the lock.
//
//	fencedstore --dir /var/lib/fencedstore --listen 127.0.0.1:8090
//	TOKEN=$(holdfast acquire config/web --ttl 1m)
//	curl -X PUT "localhost:8090/config/web?token=$TOKEN" -d 'workers=8'
//	curl localhost:8090/config/web
//
// A writer whose lease ran out while it slept has a lower token than one
// that was seen, and gets 412. Package fencing implements this.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	dir := flag.String("dir", "", "where to keep values and tokens")
	listen := flag.String("listen", "127.0.0.1:8090", "where to serve")
	flag.Parse()
	if err := run(*dir, *listen); err != nil {
		fmt.Fprintf(os.Stderr, "fencedstore: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, listen string) error {
	if dir == "" {
		return errors.New("name a directory with --dir")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := newStore(dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, s.close())
	}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	fmt.Printf("fencedstore serves %s at http://%s\n", dir, l.Addr())
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = h.Shutdown(context.Background()) // requests take seconds at most
	}
	return errors.Join(err, s.close())
}
