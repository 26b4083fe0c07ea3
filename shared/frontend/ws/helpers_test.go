// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/httpapi"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
	"github.com/holdfast-lock/holdfast/shared/watch"
	"github.com/holdfast-lock/holdfast/shared/wire"
	"github.com/holdfast-lock/holdfast/wal"
)

// backend is a primary as a node shows it, or a server that only knows who is.
type backend struct {
	serving.Backend // what no test asks for
	self            cluster.ServerID
	members         cluster.Members
	p               *primary.Primary // nil at a replica
	hub             *watch.Hub
	disk            *volumetest.Disk
	// hold, if there is one, is asked before each request and after it: it may wait.
	hold atomic.Pointer[func(q *locktable.Request, done bool)]
}

func secondary() locktable.Outcome { return locktable.Outcome{Status: cluster.StatusSecondaryMode} }

func (b *backend) Do(ctx context.Context, q *locktable.Request) (locktable.Outcome, error) {
	if b.p == nil {
		return secondary(), nil
	}
	hold := b.hold.Load()
	if hold != nil {
		(*hold)(q, false)
	}
	out, err := b.p.Do(ctx, q)
	if hold != nil {
		(*hold)(q, true)
	}
	return out, err
}

func (b *backend) Renew(ctx context.Context, l cluster.LockName, t cluster.Token) (locktable.Outcome, error) {
	if b.p == nil {
		return secondary(), nil
	}
	return b.p.Renew(ctx, l, t)
}

func (b *backend) KeepAlive(ctx context.Context, id cluster.ClientID, held serving.Belief) ([]locktable.Grant, []locktable.Ask, locktable.Outcome, error) {
	if b.p == nil {
		return nil, nil, secondary(), nil
	}
	return b.p.KeepAlive(ctx, id, held)
}

func (b *backend) Read(ctx context.Context, f func(serving.View)) (serving.Reading, error) {
	if b.p == nil {
		return serving.Reading{Status: cluster.StatusSecondaryMode, Local: true}, nil
	}
	var at cluster.LSN
	out, err := b.p.Read(ctx, func(v serving.View) { at = v.At.LSN; f(v) })
	return serving.Reading{Status: out.Status, LSN: at, Epoch: b.p.Epoch()}, err
}

func (b *backend) Hub() *watch.Hub { return b.hub }

func (b *backend) Primary() (cluster.Member, cluster.Epoch, bool) { return b.members[0], 1, true }

func (b *backend) Status() serving.ClusterStatus {
	return serving.ClusterStatus{Server: b.self, Servers: []serving.ServerStatus{{Member: b.members[b.self-1], Role: "primary"}}}
}

func (b *backend) Timing() cluster.Timing { return primarytest.Timing() }

// held is a lock as the primary has it.
func (b *backend) held(t *testing.T, name cluster.LockName) (l locktable.LockView) {
	t.Helper()
	if r, err := b.Read(t.Context(), func(v serving.View) { l, _ = v.Table.Lock(name) }); err != nil || r.Status != cluster.StatusOK {
		t.Fatalf("read: %v %v", r.Status, err)
	}
	return l
}

// file is a protected file as it lies on the disk.
func (b *backend) file(t *testing.T, name string) string {
	t.Helper()
	v, err := volume.Open(b.disk.Host(8, volumetest.ProfileLocal()), volume.Options{Server: 3, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	f, err := v.OpenReader(cluster.FileName(name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := make([]byte, 1<<16)
	n, _ := f.ReadAt(content, 0) // the end of the file
	return string(content[:n])
}

// startPrimary returns a primary over a simulated disk, with HTTP for those who forward to it.
func startPrimary(t *testing.T) *backend {
	t.Helper()
	l := listener(t)
	members := cluster.Members{
		{ID: 1, Client: l.Addr().String(), Peer: "h1:3"}, {ID: 2, Client: "h2:1", Peer: "h2:3"}, {ID: 3, Client: "h3:1", Peer: "h3:3"},
	}
	d := volumetest.New(1)
	primarytest.Init(t, d.Host(9, volumetest.ProfileLocal()), members)
	x := primarytest.Serve(t, d.Host(1, volumetest.ProfileLocal()), volume.Options{FirstSegment: 4 << 20, Segment: 4 << 20})
	b := &backend{self: 1, members: members, p: x.Primary, hub: x.Hub, disk: d}
	front := httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: quiet(t)}).Server()
	var running sync.WaitGroup
	running.Go(func() { front.Serve(l) }) //nolint:errcheck // it is closed
	t.Cleanup(func() {
		front.Close() //nolint:errcheck // likewise
		running.Wait()
	})
	return b
}

func quiet(t *testing.T) zerolog.Logger { return zerolog.New(t.Output()).Level(zerolog.WarnLevel) }

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // its server has closed it
	return l
}

// replica is a server that forwards to b, and shares its hub.
func (b *backend) replica() *backend { return &backend{self: 2, members: b.members, hub: b.hub} }

// narrow has the kernel keep little of what a client does not read.
type narrow struct{ net.Listener }

const kept = 64 << 10

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(kept)
	}
	return c, err
}

// site is a WebSocket front end that listens.
type site struct {
	*Server
	t    *testing.T
	addr string
}

func open(t *testing.T, b serving.Backend, opt Options) *site {
	t.Helper()
	opt.Log = quiet(t)
	l := listener(t)
	s := &site{
		Server: New(httpapi.New(service.New(b, service.Options{}), httpapi.Options{Log: opt.Log}).Door(), opt),
		t:      t, addr: l.Addr().String(),
	}
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	var running sync.WaitGroup
	running.Go(func() { web.Serve(narrow{l}) }) //nolint:errcheck // it is closed
	t.Cleanup(func() {
		web.Close() //nolint:errcheck // likewise
		running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Stop(ctx)
		if ctx.Err() != nil {
			t.Error("something of the front end did not end")
		}
	})
	return s
}

// client is one connection of a client.
type client struct {
	t *testing.T
	c *websocket.Conn
	// others are what came while something else was waited for.
	others []said
}

// said is what a server may say: everything at once.
type said struct {
	ID json.RawMessage `json:"id"`
	wire.Body
	Watch  json.RawMessage `json:"watch"`
	Event  *wire.EventBody `json:"event"`
	Loss   *wire.LossBody  `json:"loss"`
	Ask    *wire.AskBody   `json:"ask"`
	Missed bool            `json:"missed"`
}

func (s *site) dial() *client {
	s.t.Helper()
	c, _, err := websocket.Dial(s.t.Context(), "ws://"+s.addr+Path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetReadLimit(16 << 20)
	s.t.Cleanup(func() { c.CloseNow() }) //nolint:errcheck // it has ended
	return &client{t: s.t, c: c}
}

func (c *client) send(m string) {
	c.t.Helper()
	if err := c.c.Write(c.t.Context(), websocket.MessageText, []byte(m)); err != nil {
		c.t.Fatalf("send %.100s: %v", m, err)
	}
}

// read is what comes next, or why nothing does.
func (c *client) read() (x said, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	kind, b, err := c.c.Read(ctx)
	if err != nil {
		return x, err
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil || kind != websocket.MessageText {
		c.t.Fatalf("%v in %s", err, b)
	}
	return x, nil
}

// hear waits for something; what comes before it is kept.
func (c *client) hear(what string, is func(*said) bool) said {
	c.t.Helper()
	if i := slices.IndexFunc(c.others, func(x said) bool { return is(&x) }); i >= 0 {
		x := c.others[i]
		c.others = slices.Delete(c.others, i, i+1)
		return x
	}
	for {
		x, err := c.read()
		if err != nil {
			c.t.Fatalf("%s: %v, after %+v", what, err, c.others)
		}
		if is(&x) {
			return x
		}
		c.others = append(c.others, x)
	}
}

// answer waits for the answer to an ID.
func (c *client) answer(id string) said {
	c.t.Helper()
	return c.hear("answer "+id, func(x *said) bool { return string(x.ID) == id })
}

// ask sends a message with ID 0 and the answer to it.
func (c *client) ask(m string) said {
	c.t.Helper()
	c.send(`{"id":0,` + strings.TrimPrefix(m, "{"))
	return c.answer("0")
}

func (c *client) ok(m string) said {
	c.t.Helper()
	x := c.ask(m)
	if x.Status != "OK" {
		c.t.Fatalf("%s: %+v", m, x)
	}
	return x
}

// event waits for the next event of a watch.
func (c *client) event(id string) *wire.EventBody {
	c.t.Helper()
	return c.hear("event of watch "+id, func(x *said) bool { return string(x.Watch) == id }).Event
}

// nothing sees to it that nothing has come before the answer to a ping.
func (c *client) nothing() {
	c.t.Helper()
	c.ok(`{"op":"ping"}`)
	if len(c.others) > 0 {
		c.t.Errorf("it was told %+v", c.others)
	}
}

// closed waits for the end, and wants it to be with this code and reason.
func (c *client) closed(code websocket.StatusCode, reason string) {
	c.t.Helper()
	for {
		_, err := c.read()
		if err == nil {
			continue
		}
		e, _ := errors.AsType[websocket.CloseError](err)
		if e.Code != code || !strings.Contains(e.Reason, reason) {
			c.t.Errorf("ended with %v, want %v %q", err, code, reason)
		}
		return
	}
}

// eventually looks until what is said is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := time.After(time.Minute)
	for !so() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("never: %s", what)
		}
	}
}

var _ http.Handler = (*Server)(nil)

// positionFarAhead is where no frame has led to.
func positionFarAhead() wal.Position { return wal.Position{LSN: 1 << 20, Chain: 7} }
