// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/frontend/text"
	"github.com/holdfast-lock/holdfast/shared/nettest"
)

var textSeeds = flag.Int("sim.texts", 2, "how many seeds of the line protocol to run")

const (
	speakerTTL  = 6 * time.Second
	speakerWait = 4 * time.Second
	// patient is how long a speaker waits for an answer before it goes elsewhere.
	patient = 3 * time.Second
)

// doors are the line protocol of a cluster's servers, and the HTTP that their forwards need.
type doors struct {
	*fronts
	mu   sync.Mutex
	open map[*server]*door
}

type door struct{ text, http *memoryListener }

func newListener() *memoryListener {
	return &memoryListener{in: make(chan net.Conn), closed: make(chan struct{})}
}

// door is where a server listens; it begins with the first who asks.
func (d *doors) door(id cluster.ServerID) *door {
	x := d.c.server(id)
	if x == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.open[x]; o != nil {
		return o
	}
	o := &door{newListener(), newListener()}
	d.open[x] = o
	to := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return d.forward(ctx, id, addr)
	}}
	h := httpapi.New(service.New(x.node, service.Options{}), httpapi.Options{Transport: to})
	web, lines := h.Server(), text.New(h.Door())
	go web.Serve(o.http)   //nolint:errcheck // it ends with Close
	go lines.Serve(o.text) //nolint:errcheck // it ends with Stop
	go func() {
		<-x.done
		now, cancel := context.WithCancel(context.Background())
		cancel()
		lines.Stop(now)
		web.Close() //nolint:errcheck // connections in memory
		to.CloseIdleConnections()
	}()
	return o
}

// forward connects two servers.
func (d *doors) forward(ctx context.Context, from cluster.ServerID, addr string) (net.Conn, error) {
	var id cluster.ServerID
	if _, err := fmt.Sscanf(addr, "192.0.2.%d:1", &id); err != nil {
		return nil, err
	}
	o := d.door(id)
	if o == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: errors.New("refused")}
	}
	return reach(ctx, o.http, d.gates[from], d.gates[id])
}

// reach connects with a listener, through gates.
func reach(ctx context.Context, l *memoryListener, gates ...*nettest.Gate) (net.Conn, error) {
	for _, g := range gates {
		select {
		case <-g.Open():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	here, there := net.Pipe()
	select {
	case l.in <- there:
		return nettest.Through(here, gates...), nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// turns judges who has the lock, by what its clients were told.
type turns struct {
	t     *testing.T
	mu    sync.Mutex
	until map[string]time.Time // up to when a client may count on it
	last  string               // who had it last
	token uint64               // and under which token
	n     int
}

// counts notes that a client counts on the lock up to a time: no other does.
func (x *turns) counts(name string, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	for other, at := range x.until {
		if other != name && at.After(now) && until.After(now) {
			x.t.Errorf("%s has the lock, and %s for another %v too", name, other, at.Sub(now))
		}
	}
	x.until[name] = until
}

func (x *turns) lets(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.until, name)
}

// under notes a token that a client was told of while it had the lock.
func (x *turns) under(name string, token uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.until[name].After(time.Now()) {
		return // it was told too late to count
	}
	if token < x.token || token == x.token && name != x.last {
		x.t.Errorf("%s has token %d behind %s with token %d", name, token, x.last, x.token)
	}
	if token != x.token {
		x.n++
	}
	x.last, x.token = name, token
}

// speaker is a client that has nothing but lines.
type speaker struct {
	name string
	d    *doors
	x    *turns
	own  *nettest.Gate
	rng  *rand.Rand

	conn net.Conn // nil while there is none
	r    *bufio.Reader
}

// say sends a line and returns the answer, or "" where there came none in time.
func (s *speaker) say(ctx context.Context, line string, patience time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.conn == nil {
		id := cluster.ServerID(1 + s.rng.IntN(3))
		o := s.d.door(id)
		if o == nil {
			time.Sleep(10 * time.Millisecond)
			return ""
		}
		c, err := reach(ctx, o.text, s.own, s.d.gates[id])
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			return ""
		}
		s.conn, s.r = c, bufio.NewReader(c)
	}
	conn := s.conn
	stop := context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // a pipe
	_, err := io.WriteString(conn, line+"\n")
	word := ""
	if err == nil {
		word, err = s.r.ReadString('\n')
	}
	if !stop() || err != nil {
		s.leave()
	}
	if word = strings.TrimSuffix(word, "\n"); word == "ERROR" {
		s.leave() // the next one goes elsewhere, perhaps
		time.Sleep(100 * time.Millisecond)
	}
	return word
}

func (s *speaker) leave() {
	if s.conn != nil {
		s.conn.Close() //nolint:errcheck // a pipe
		s.conn = nil
	}
}

// until says a line again until it is answered with something else than ERROR. It returns
// when the last one was sent.
func (s *speaker) until(ctx context.Context, line string, patience time.Duration) (word string, sent time.Time) {
	for ctx.Err() == nil && (word == "" || word == "ERROR") {
		sent = time.Now()
		word = s.say(ctx, line, patience)
	}
	return word, sent
}

// run takes turns until ctx ends.
func (s *speaker) run(ctx context.Context) {
	defer s.leave()
	for ctx.Err() == nil {
		line, patience := fmt.Sprintf("LOCK,svc,%s,%v", s.name, speakerTTL), patient
		if s.rng.IntN(2) == 0 {
			line, patience = fmt.Sprintf("%s,%v", line, speakerWait), patient+speakerWait
		}
		word, sent := s.until(ctx, line, patience)
		if word == "SUCCESS" && patience > patient { // who waited does not know since when
			word, sent = s.until(ctx, "RENEW,svc,"+s.name, patient)
		}
		if word != "SUCCESS" {
			time.Sleep(time.Duration(s.rng.IntN(1000)) * time.Millisecond)
			continue
		}
		s.turn(ctx, sent)
		// It says nothing of the lock until it is told that it has it no more.
		s.x.lets(s.name)
		s.until(ctx, "UNLOCK,svc,"+s.name, patient)
	}
}

// turn has the lock for a while, from a LOCK or RENEW sent then.
func (s *speaker) turn(ctx context.Context, sent time.Time) {
	s.x.counts(s.name, sent.Add(speakerTTL))
	if word := s.say(ctx, "TOKEN,svc,"+s.name, patient); word != "" && word != "ERROR" && word != "NONE" {
		token, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			s.x.t.Errorf("TOKEN: %q", word)
		}
		s.x.under(s.name, token)
	}
	for range s.rng.IntN(3) {
		time.Sleep(time.Duration(s.rng.IntN(2000)) * time.Millisecond)
		again := time.Now()
		switch word := s.say(ctx, "RENEW,svc,"+s.name, patient); {
		case word == "SUCCESS":
			sent = again
			s.x.counts(s.name, sent.Add(speakerTTL))
		case word == "FAIL" && time.Now().Before(sent.Add(speakerTTL)):
			s.x.t.Errorf("%s lost the lock %v after it was told that it has it for %v", s.name, time.Since(sent), speakerTTL)
		}
	}
	time.Sleep(min(time.Duration(s.rng.IntN(3000))*time.Millisecond, max(0, time.Until(sent.Add(speakerTTL)))))
}

// TestLines lets clients of the line protocol take turns at random servers, over faults of these and cuts: no two
// are told that they have the lock, tokens rise, and no lease is shorter than was said.
func TestLines(t *testing.T) {
	scenarios(t, *textSeeds, textScenario)
}

func textScenario(t *testing.T, seed uint64) {
	const speakers, faults = 4, 12
	c := electionCluster(t, seed)
	c.one(t, "start")
	d := &doors{fronts: newFronts(c), open: map[*server]*door{}}
	x := &turns{t: t, until: map[string]time.Time{}}
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	var own []*nettest.Gate
	for i := range uint64(speakers) {
		s := &speaker{name: fmt.Sprintf("c%d", i), d: d, x: x, own: nettest.NewGate(), rng: rand.New(rand.NewPCG(seed, i))}
		own = append(own, s.own)
		ended.Go(func() { s.run(ctx) })
	}
	var scenario []string
	for range faults {
		time.Sleep(time.Duration(c.Rand.IntN(6000)) * time.Millisecond)
		name, heal := d.drawFault(t, own)
		scenario = append(scenario, name)
		time.Sleep(time.Duration(c.Rand.IntN(10000)) * time.Millisecond)
		heal()
		c.one(t, name)
	}
	x.mu.Lock()
	before := x.n
	x.mu.Unlock()
	time.Sleep(healing + 5*speakerTTL)
	stop()
	ended.Wait()
	if x.n == before {
		t.Error("when all is well nobody has had a turn")
	}
	c.Shutdown()
	t.Logf("%d turns, over: %s", x.n, strings.Join(scenario, ", "))
}

// drawFault injects a fault of a server or the way to one, and returns what heals it.
func (d *doors) drawFault(t *testing.T, own []*nettest.Gate) (name string, heal func()) {
	id := cluster.ServerID(1 + d.c.Rand.IntN(3))
	switch d.c.Rand.IntN(4) {
	case 0:
		g := own[d.c.Rand.IntN(len(own))]
		g.Cut()
		return "cut a client off", g.Mend
	case 1: // it is stopped, as far as anybody can see
		gate := d.c.Hang(id)
		d.c.Net.Isolate(id, true)
		d.gates[id].Cut()
		return fmt.Sprintf("stop server %d", id), func() {
			gate.Resume()
			d.c.Net.Heal()
			d.gates[id].Mend()
		}
	default:
		return d.c.draw(t)
	}
}
