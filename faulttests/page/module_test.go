// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

// TestModuleOverFailover opens the example page of a secured server, with a key. Its module waits behind another holder, over TLS, while the primary
// dies, and then the server that it is connected to. It is granted the lock when that is back, and appends once.
func TestModuleOverFailover(t *testing.T) {
	c := start(t)
	first := c.AwaitPrimary(cluster.Patience)
	second := c.Server(first.Member.ID%3 + 1)
	key, _ := secured(t, c)
	x, err := clientlib.New(clientlib.Options{Endpoints: []string{c.Dir()}, Budget: cluster.Patience, Credential: func(context.Context, string) (string, error) { return key, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() }) //nolint:errcheck // the end of the test
	const name = "service/ci/page"
	held := acquire(t, x, name, clientlib.AcquireOptions{TTL: 5 * time.Minute})
	v := open(t, desk(), "https://"+second.Member.Client+"/page/example.html?lock="+name+"#"+key)
	says := func(text string) {
		v.until(text, fmt.Sprintf(`document.getElementById("log").textContent.includes(%q)`, text))
	}
	says("event enqueue")
	for _, s := range []*cluster.Server{first, second} {
		s.Kill()
		c.AwaitPrimary(cluster.Patience)
		s.Start()
		c.AwaitReplicas(cluster.Patience)
	}
	release(t, held)
	says("released OK")
	b, err := os.ReadFile(filepath.Join(c.Dir(), "files", name+".log"))
	if err != nil || string(b) != "a line from a page\n" {
		t.Errorf("the file holds %q: %v", b, err)
	}
}
