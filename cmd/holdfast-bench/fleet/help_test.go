// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
)

const testLease = 30 * time.Second

// fakeLease is renewed every third of a lease until it stops, as a lock of a client that is cut off then.
type fakeLease struct {
	began time.Time
	stops time.Duration // since began; 0 = never
}

func (f *fakeLease) renewed() time.Time {
	age := time.Since(f.began)
	if f.stops > 0 {
		age = min(age, f.stops)
	}
	return f.began.Add(age.Truncate(testLease / 3))
}

func (f *fakeLease) Expires() time.Time { return f.renewed().Add(testLease) }

func (f *fakeLease) State() clientlib.State {
	switch age := time.Since(f.renewed()); {
	case age >= testLease:
		return clientlib.State{Phase: clientlib.PhaseLost}
	case age > testLease/2:
		return clientlib.State{Phase: clientlib.PhaseJeopardy}
	}
	return clientlib.State{Phase: clientlib.PhaseValid}
}

func (f *fakeLease) Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if f.State().Phase == clientlib.PhaseLost {
		return ctx
	}
	return context.Background()
}

// fakes are clients of which one is cut off after 45 s, so that its last renewal is that of 40 s and it is lost after 70.
func fakes(out *bytes.Buffer) *members {
	m := &members{out: json.NewEncoder(out), lease: testLease}
	for i := range 10 {
		f := &fakeLease{began: time.Now()}
		if i == 3 {
			f.stops = 45 * time.Second
		}
		m.all = append(m.all, member{lock: f})
	}
	return m
}

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		x, err := fakes(&out).observe(t.Context(), &observeOrder{For: 95 * time.Second})
		// Nine renewals of each, four of the one that is cut off.
		if want := (Observed{Renewals: 9*9 + 4, Late: 1, Lost: 1}); err != nil || x != want {
			t.Errorf("%+v, %v, want %+v", x, err, want)
		}
		if n := strings.Count(out.String(), "done"); n < 70 {
			t.Errorf("it said %d times how far it is", n)
		}
	})
}

func TestConfirm(t *testing.T) {
	for _, tt := range []struct {
		name             string
		begins           time.Duration
		limit            time.Duration
		times            int
		lost, open       int64
		longest, atLeast time.Duration
	}{
		{"all in time", 5 * time.Second, time.Minute, 10, 0, 0, 6 * time.Second, 5 * time.Second},
		{"one is lost", 46 * time.Second, time.Minute, 9, 1, 0, 25 * time.Second, 23 * time.Second},
		{"one stays open", 46 * time.Second, 10 * time.Second, 9, 0, 1, 11 * time.Second, 10 * time.Second},
		{"nobody yet", 51 * time.Second, time.Second, 0, 0, 10, 2 * time.Second, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m := fakes(&out)
				<-time.After(tt.begins)
				began := time.Now()
				x, err := m.confirm(t.Context(), &confirmOrder{Limit: tt.limit})
				if err != nil || len(x.Times) != tt.times || x.Lost != tt.lost || x.Open != tt.open {
					t.Errorf("%d confirmed, %d lost, %d open, %v", len(x.Times), x.Lost, x.Open, err)
				}
				if took := time.Since(began); took < tt.atLeast || took > tt.longest { // of the bubble's clock
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestHelpRefusesOrdersItDoesNotKnow(t *testing.T) {
	var out bytes.Buffer
	m := &members{out: json.NewEncoder(&out)}
	if err := m.obey(t.Context(), order{}); err == nil || out.Len() > 0 {
		t.Errorf("%v, %s", err, out.String())
	}
	if err := Help(t.Context(), nil, strings.NewReader(""), &out); err != nil {
		t.Errorf("the end of its orders: %v", err)
	}
}
