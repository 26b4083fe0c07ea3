// SPDX-License-Identifier: Apache-2.0

package conns_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/conns"
)

func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := conns.NewListener()
		here, there := net.Pipe()
		go l.Put(there)
		if c, err := l.Accept(); c != there || err != nil {
			t.Errorf("accepted %v, %v", c, err)
		}
		late := make(chan error)
		go func() { _, err := l.Accept(); late <- err }()
		synctest.Wait()
		for range 2 {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-late; !errors.Is(err, net.ErrClosed) {
			t.Errorf("whoever waits for a connection: %v", err)
		}
		l.Put(there)
		if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that came too late is not closed: %v", err)
		}
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r conns.Refusals
		var told []int
		for range 7 {
			told = append(told, r.Count(3*time.Second))
			time.Sleep(time.Second)
		}
		if want := []int{1, 0, 0, 3, 0, 0, 3}; !slices.Equal(told, want) {
			t.Errorf("told of %v, want %v", told, want)
		}
	})
}

// TestComputing: who waits for the other side has no place, and so keeps nobody from one.
func TestComputing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := make(chan struct{}, 2)
		here, there := net.Pipe()
		c := conns.Compute(there, places)
		read := make(chan byte)
		go func() {
			b := make([]byte, 1)
			_, _ = c.Read(b)
			read <- b[0]
		}()
		synctest.Wait()
		other := conns.Compute(here, places)
		if len(places) != 1 {
			t.Errorf("%d places are taken", len(places))
		}
		if _, err := other.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		other.Done()
		if got := <-read; got != 'x' {
			t.Errorf("read %q", got)
		}
		c.Without(func() {
			if len(places) != 0 {
				t.Errorf("%d places are taken meanwhile", len(places))
			}
		})
		c.Done()
		go io.WriteString(here, "y") //nolint:errcheck // the reader would miss it
		if b := make([]byte, 1); len(places) != 0 {
			t.Errorf("%d places are taken in the end", len(places))
		} else if _, err := c.Read(b); b[0] != 'y' || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
	})
}
