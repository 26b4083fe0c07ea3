// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// TestCanaryLag follows plain reads that are three seconds old.
func TestCanaryLag(t *testing.T) {
	var c canary
	now := time.Unix(1000, 0)
	if c.hear(0, 0, now) {
		t.Error("nobody told anything")
	}
	for second := range uint64(10) {
		value := 100 + second
		if !c.hear(1, value, now) {
			t.Errorf("value %d is no reason to look", value)
		}
		if c.look(value, value-3, now) {
			t.Errorf("value %d: alarm", value)
		}
		now = now.Add(time.Second)
	}
	s := c.read(now)
	if s.Looks != 10 || s.StaleReads != 10 || s.StaleDirectReads != 0 || s.MaxLag != 2*time.Second || s.Age != time.Second {
		t.Errorf("got %+v", s)
	}
	// Once it has been seen there is nothing to read until a new value is told.
	c.look(109, 109, now)
	if c.hear(1, 109, now) {
		t.Error("a value that was seen is a reason to look")
	}
}

// TestCanaryAlarm: a read past the caches that is old raises the alarm once for each primary.
func TestCanaryAlarm(t *testing.T) {
	var c canary
	now := time.Unix(1000, 0)
	for i, x := range []struct {
		from         uint32
		told, direct uint64
		alarm        bool
		staleDirect  uint64
	}{
		{1, 10, 10, false, 0},
		{1, 11, 12, false, 0}, // written, and not told yet
		{1, 13, 12, true, 1},
		{1, 14, 12, false, 2},
		{1, 15, 15, false, 2},
		{2, 5, 5, false, 2}, // another primary counts for itself
		{2, 6, 5, true, 3},
	} {
		c.hear(cluster.ServerID(x.from), x.told, now)
		if got := c.look(x.direct, x.direct, now); got != x.alarm {
			t.Errorf("row %d: alarm %v", i, got)
		}
		if s := c.read(now); s.StaleDirectReads != x.staleDirect {
			t.Errorf("row %d: got %+v", i, s)
		}
	}
}

// TestCanaryIsBounded: a view that never changes costs no memory, and its age is right.
func TestCanaryIsBounded(t *testing.T) {
	var c canary
	now := time.Unix(1000, 0)
	for second := range uint64(1000) {
		c.hear(1, 1+second, now)
		c.look(1+second, 0, now)
		now = now.Add(time.Second)
	}
	if n := len(c.mu.queue); n > maxTold {
		t.Errorf("%d values are kept", n)
	}
	if s := c.read(now); s.MaxLag != 999*time.Second {
		t.Errorf("got %+v", s)
	}
}
