// SPDX-License-Identifier: Apache-2.0

// Command fencedstore is an example of a resource that Holdfast's locks protect
// although Holdfast does not know it: a small store of values over HTTP, which
// accepts a value only under the highest token that it has seen for the lock,
// and a token only if a server of the cluster has signed that it was granted.
//
//	fencedstore --dir /var/lib/fencedstore --keys http://127.0.0.1:7601/v1/keys
//	TOKEN=$(holdfast acquire config/web --ttl 1m)
//	PROOF=$(holdfast proof config/web --token $TOKEN)
//	curl -X PUT localhost:8090/config/web -H "Holdfast-Proof: $PROOF" -d 'workers=8'
//	curl localhost:8090/config/web
//
// A writer whose lease ran out while it slept has a lower token than one
// that was seen, and gets 412. Who makes a token up gets 403, and keeps nobody
// out. Package fencing implements this.
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

	"github.com/holdfast-lock/holdfast/clientlib/fencing"
)

func main() {
	dir := flag.String("dir", "", "where to keep values and tokens")
	listen := flag.String("listen", "127.0.0.1:8090", "where to serve")
	keys := flag.String("keys", "", "the keys of the cluster: keys.json, the directory of the volume, or a URL such as https://h1:7601/v1/keys")
	cluster := flag.String("cluster", "", "the ID of the cluster (default: any that signs with these keys)")
	flag.Parse()
	if err := run(*dir, *listen, *keys, *cluster); err != nil {
		fmt.Fprintf(os.Stderr, "fencedstore: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, listen, source, cluster string) error {
	if dir == "" || source == "" {
		return errors.New("name a directory with --dir, and the keys of the cluster with --keys")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	keys, err := fencing.OpenKeys(source, cluster)
	if err != nil {
		return err
	}
	s, err := newStore(dir, keys)
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
