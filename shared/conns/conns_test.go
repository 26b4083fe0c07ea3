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
