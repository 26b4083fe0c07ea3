// SPDX-License-Identifier: Apache-2.0

package nettest_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/nettest"
)

// What is written behind a gate that is cut, even twice, arrives when it is mended, and not before.
func TestNothingIsLostAtAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := nettest.NewGate()
		here, there := net.Pipe()
		c := nettest.Through(here, g)
		defer there.Close()
		defer c.Close()
		g.Cut()
		waiting := g.Open()
		g.Cut()
		if _, err := c.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		read := make(chan error, 1)
		go func() { _, err := io.ReadFull(there, b); read <- err }()
		synctest.Wait()
		select {
		case <-read:
			t.Fatal("it passed a gate that is cut")
		case <-waiting:
			t.Fatal("the gate is open")
		default:
		}
		g.Mend()
		<-waiting
		if err := <-read; err != nil || string(b) != "word" {
			t.Errorf("%q, %v", b, err)
		}
	})
}
