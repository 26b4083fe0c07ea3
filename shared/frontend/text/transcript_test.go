// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// pipes is a listener of connections in memory.
type pipes struct {
	in     chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{in: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.in <- there
	return here
}

// stage is a service, its front end and some connections.
type stage struct {
	t     *testing.T
	s     *fakeService
	x     *Server
	l     *pipes
	conns map[string]net.Conn
	mu    sync.Mutex
	said  strings.Builder // by the front end
}

func newStage(t *testing.T) *stage {
	g := &stage{t: t, s: newService(t), l: newPipes(), conns: map[string]net.Conn{}}
	g.x = New(g.s)
	go g.x.Serve(g.l) //nolint:errcheck // ErrStopped
	return g
}

// end stops the front end. Nothing is left then, or the bubble would say so.
func (g *stage) end() {
	for _, c := range g.conns {
		c.Close() //nolint:errcheck // a pipe
	}
	g.x.Stop(g.t.Context())
}

// conn is the connection of this name, made with its first use.
func (g *stage) conn(name string) net.Conn {
	if c := g.conns[name]; c != nil {
		return c
	}
	c := g.l.dial()
	g.conns[name] = c
	go func() {
		r := bufio.NewReader(c)
		for {
			s, err := r.ReadString('\n')
			g.mu.Lock()
			if err != nil {
				fmt.Fprintf(&g.said, "%s is closed\n", name)
			} else {
				fmt.Fprintf(&g.said, "%s < %s", name, s)
			}
			g.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

// heard is what the front end has said since.
func (g *stage) heard() string {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	lines := strings.SplitAfter(g.said.String(), "\n")
	g.said.Reset()
	slices.SortStableFunc(lines, func(a, b string) int { // connections have no order among them
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return strings.Join(lines, "")
}

// do executes one line of a transcript, and returns what is to be seen then.
func (g *stage) do(command string) string {
	who, what, _ := strings.Cut(command, " ")
	switch who {
	case "advance":
		d, err := time.ParseDuration(what)
		if err != nil {
			g.t.Fatal(err)
		}
		time.Sleep(d)
	case "close":
		g.conn(what).Close() //nolint:errcheck // a pipe
		delete(g.conns, what)
	case "show":
		synctest.Wait()
		return g.heard() + g.s.line(cluster.LockName(what)) + "\n"
	case "other":
		lock, client, _ := strings.Cut(what, " ")
		g.s.hold(cluster.LockName(lock), cluster.ClientID(client))
	case "lose":
		g.s.tell(nil, once(what))
	case "refuse":
		word, name, _ := strings.Cut(what, " ")
		status, ok := cluster.ParseStatus(word)
		if !ok {
			g.t.Fatalf("there is no status %q", word)
		}
		g.s.tell(refusing(status, strings.Fields(name)...), nil)
	case "heal":
		g.s.tell(nil, nil)
	case "stop":
		ctx, cancel := context.WithTimeout(g.t.Context(), time.Second)
		defer cancel()
		g.x.Stop(ctx)
	default:
		what = strings.TrimPrefix(strings.TrimPrefix(what, ">"), " ")
		if _, err := fmt.Fprintf(g.conn(who), "%s\n", strings.ReplaceAll(what, "␤", "\n")); err != nil {
			return err.Error() + "\n"
		}
	}
	return g.heard()
}

// TestTranscript plays testdata/transcript.txt: who says what, and what is answered. Write
// it anew with HOLDFAST_REWRITE=1, and read it.
func TestTranscript(t *testing.T) {
	const path = "testdata/transcript.txt"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for i, scene := range strings.Split(string(b), "\n\n") {
		if i > 0 {
			got.WriteString("\n")
		}
		synctest.Test(t, func(t *testing.T) {
			g := newStage(t)
			defer g.end()
			for line := range strings.Lines(scene) {
				switch command, ok := strings.CutPrefix(line, "$ "); {
				case ok:
					got.WriteString(line)
					if !strings.HasSuffix(line, "\n") {
						got.WriteString("\n")
					}
					got.WriteString(g.do(strings.TrimSpace(command)))
				case strings.HasPrefix(line, "#"):
					got.WriteString(line)
				}
			}
		})
	}
	if os.Getenv("HOLDFAST_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != string(b) {
		t.Errorf("%s: got\n%s", path, &got)
	}
}
