// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/gluster"
)

// TestBricks stops one brick after the other, and cuts clients from bricks. The
// volume takes writes all the time, and every mount sees the last one. It takes two minutes: a client gives a silent brick up after network.ping-timeout.
func TestBricks(t *testing.T) {
	v := start(t, gluster.Options{})
	for i := range gluster.Replicas {
		must(t, v.StopBrick(i))
		writeAndRead(t, v, "a brick is down")
		must(t, v.StartBrick(i))
		must(t, v.AwaitHealed())
		writeAndRead(t, v, "all bricks are there")
	}
	for i := range gluster.Replicas {
		must(t, v.CutBrick(i, i))
		writeAndRead(t, v, "a client is cut from a brick")
		must(t, v.JoinBrick(i, i))
		must(t, v.AwaitHealed())
		writeAndRead(t, v, "the client has come back")
	}
	if err := v.JoinBrick(0, 0); err == nil {
		t.Error("a client that was not cut was joined")
	}
}

// writeAndRead writes on each mount and wants to read it on all.
func writeAndRead(t *testing.T, v *gluster.Volume, when string) {
	t.Helper()
	began := time.Now()
	for i, from := range v.Mounts() {
		data := when + time.Now().String()
		must(t, os.WriteFile(filepath.Join(from, "file"), []byte(data), 0o644))
		for j, at := range v.Mounts() {
			if got, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(got) != data {
				t.Errorf("%s: client %d wrote %q, client %d reads %q (%v)", when, i, data, j, got, err)
			}
		}
	}
	t.Logf("%s: nine reads of three writes took %v", when, time.Since(began).Round(time.Millisecond))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
