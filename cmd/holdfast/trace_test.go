// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/clientlib/oteltrace"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace/collector"
)

// traceSVG is where TestTraces writes the picture of docs/traces.md.
var traceSVG = flag.String("trace.svg", "", "the file for a picture of the traces of TestTraces")

// tracing is a client whose calls are traced, over servers that send their part to the same collector.
type tracing struct {
	*world
	collector *collector.Collector
	client    *clientlib.Client
	provider  *sdk.TracerProvider
	tracer    trace.Tracer
}

func startTracing(t *testing.T) *tracing {
	c := collector.New(t)
	x := &tracing{collector: c, world: startDev(t, "--trace-otlp", c.Addr, "--trace-sample", "1e-9")}
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(c.Addr), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	x.provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter, sdk.WithBatchTimeout(100*time.Millisecond)))
	t.Cleanup(func() { x.provider.Shutdown(context.Background()) }) //nolint:errcheck // the collector has what the test wants
	x.tracer = x.provider.Tracer("test")
	x.client, err = clientlib.New(clientlib.Options{
		Endpoints: strings.Split(x.endpoints, ","), Hooks: clientlib.Hooks{Call: oteltrace.Calls(x.provider)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.client.Close() })                                         //nolint:errcheck // it returns nil
	warm, err := x.client.Acquire(t.Context(), "warm", clientlib.AcquireOptions{}) // opens the client, outside of the traces below
	if err != nil {
		t.Fatal(err)
	}
	if err := warm.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// primary returns the ID of the primary.
func (x *tracing) primary() uint32 {
	x.t.Helper()
	s, err := x.client.Status(x.t.Context())
	if err != nil || s.Primary == nil {
		x.t.Fatalf("status: %+v, %v", s, err)
	}
	return uint32(s.Primary.ID)
}

// traced calls f below a span of this name, and returns the ID of the trace.
func (x *tracing) traced(name string, f func(context.Context) error) string {
	x.t.Helper()
	ctx, span := x.tracer.Start(x.t.Context(), name)
	err := f(ctx)
	span.End()
	if err != nil {
		x.t.Fatalf("%s: %v", name, err)
	}
	return span.SpanContext().TraceID().String()
}

// spans returns the spans of a trace when all of these names are there.
func (x *tracing) spans(id string, names ...string) []collector.Span {
	x.t.Helper()
	of := func(all []collector.Span) []collector.Span {
		return slices.DeleteFunc(all, func(s collector.Span) bool { return s.Trace != id })
	}
	return of(x.collector.Await(x.t, fmt.Sprint(names), func(all []collector.Span) bool {
		is := of(all)
		for _, name := range names {
			if find(is, name) == nil {
				return false
			}
		}
		return true
	}))
}

func find(all []collector.Span, name string) *collector.Span {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// below fails the test unless each span is a child of the one before, and lies within it; spans of other processes of this host are
// within a little.
func below(t *testing.T, all []collector.Span, names ...string) {
	t.Helper()
	const clocks = 5 * time.Millisecond
	parent := find(all, names[0])
	for _, name := range names[1:] {
		i := slices.IndexFunc(all, func(s collector.Span) bool { return s.Name == name && s.Parent == parent.ID })
		if i < 0 {
			t.Errorf("%s is not below %s: %+v", name, parent.Name, all)
			return
		}
		child := &all[i]
		if child.Began.Before(parent.Began.Add(-clocks)) || child.Ended.After(parent.Ended.Add(clocks)) || child.Took() < 0 {
			t.Errorf("%s, from %v to %v, is not within %s, from %v to %v", name, child.Began, child.Ended, parent.Name, parent.Began, parent.Ended)
		}
		parent = child
	}
}

// TestTraces follows an acquire, an append and a wait that a release ends, from the client's call to the file, through the servers'
// processes.
func TestTraces(t *testing.T) {
	x := startTracing(t)
	var l *clientlib.Lock
	const job = "nightly report"
	id := x.traced(job, func(ctx context.Context) (err error) {
		if l, err = x.client.Acquire(ctx, "traced", clientlib.AcquireOptions{}); err != nil {
			return err
		}
		_, err = l.Append(ctx, "report", []byte("what happened\n"))
		return err
	})
	all := x.spans(id, "acquire", "append", "write")
	below(t, all, job, "holdfast.acquire", "holdfast.try", "acquire", "queue")
	for _, stage := range []string{"queue", "sync", "check", "write"} {
		below(t, all, job, "holdfast.append", "holdfast.try", "append", stage)
	}
	if s := find(all, "append"); s.Attributes["holdfast.file"] != "report" || s.Attributes["holdfast.lock"] != "traced" || s.Kind != "SPAN_KIND_SERVER" {
		t.Errorf("the append is %+v", s)
	}
	waited := make(chan string, 1)
	go func() {
		waited <- x.traced("next job", func(ctx context.Context) error {
			next, err := x.client.Acquire(ctx, "traced", clientlib.AcquireOptions{Wait: clientlib.Forever})
			if err == nil {
				l = next
			}
			return err
		})
	}()
	for queued := false; !queued; {
		s, err := x.client.Get(t.Context(), "traced")
		queued = err != nil || s.QueueLength > 0
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := x.spans(<-waited, "acquire", "wait")
	below(t, after, "next job", "holdfast.acquire", "holdfast.try", "acquire", "wait")
	if wait, whole := find(after, "wait"), find(after, "acquire"); wait.Took() > whole.Took() || find(after, "sync") == nil || find(after, "check") == nil {
		t.Errorf("the wait took %v of %v: %+v", wait.Took(), whole.Took(), after)
	}
	if *traceSVG != "" {
		if err := os.WriteFile(*traceSVG, []byte(waterfall(all)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTraceOverAForward: a replica passes on the trace of an HTTP request, and what only chance would trace is not traced.
func TestTraceOverAForward(t *testing.T) {
	x := startTracing(t)
	primary, n := x.primary(), 0
	for i, s := range x.servers {
		if s.ID == primary {
			continue
		}
		id := fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02x", i)
		post := func(parent string) {
			n++
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.Client+"/v1/acquire", strings.NewReader(fmt.Sprintf(`{"lock":"f%d","ttl":"10s"}`, n)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("traceparent", parent)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close() //nolint:errcheck // its status will do
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("acquire at a replica: %v", resp.Status)
			}
		}
		for _, none := range []string{"00-nonsense", "00-" + id + "-b7ad6b7169203331-00", ""} {
			post(none)
		}
		post("00-" + id + "-b7ad6b7169203331-01")
		all := x.spans(id, "acquire", "forward")
		below(t, all, "forward", "acquire")
		if f := find(all, "forward"); f.Parent != "b7ad6b7169203331" || f.Attributes["holdfast.to_server"] != fmt.Sprint(primary) || f.Resource["holdfast.server"] != fmt.Sprint(s.ID) {
			t.Errorf("the forward is %+v", f)
		}
	}
	for _, s := range x.collector.Spans() {
		asked := strings.HasPrefix(s.Trace, "0af7651916cd43dd8448eb211c8031") || s.Attributes["holdfast.lock"] == "warm"
		if s.Resource["service.name"] == "holdfast" && s.Attributes["holdfast.status"] != "" && !asked {
			t.Errorf("%s is traced and nobody asked for it: %+v", s.Name, s)
		}
	}
}

// TestTraceOverAFailover shows the tries of a call in whose middle the primary dies.
func TestTraceOverAFailover(t *testing.T) {
	x := startTracing(t)
	primary := x.primary()
	for _, s := range x.servers {
		if s.ID == primary {
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	id := x.traced("after a death", func(ctx context.Context) error {
		_, err := x.client.Acquire(ctx, "over", clientlib.AcquireOptions{})
		if errors.Is(err, clientlib.ErrNotAcquired) {
			return nil
		}
		return err
	})
	all := x.spans(id, "holdfast.acquire", "acquire")
	call, failed, servers := find(all, "holdfast.acquire"), 0, map[string]bool{}
	for _, s := range all {
		if s.Name != "holdfast.try" {
			continue
		}
		if s.Parent != call.ID {
			t.Errorf("a try is not below the call: %+v", s)
		}
		if servers[s.Attributes["server.address"]] = true; s.Failed {
			failed++
		}
	}
	if call.Failed || failed == 0 || len(servers) < 2 {
		t.Errorf("%d tries failed, at %v: %+v", failed, servers, all)
	}
}

// waterfall draws the spans of a trace, one below the other.
func waterfall(all []collector.Span) string {
	const width, label, row, names = 900, 250, 22, 16
	from, to := all[0].Began, all[0].Ended
	for _, s := range all {
		if s.Ended.After(to) {
			to = s.Ended
		}
	}
	scale := float64(width-label-90) / float64(max(1, to.Sub(from)))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, row*len(all)+40)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="8" y="%d" fill="#555">client in blue, servers in orange; %.1f ms in all</text>`+"\n", row*len(all)+28, to.Sub(from).Seconds()*1000)
	line := 0
	var draw func(parent string, depth int)
	draw = func(parent string, depth int) {
		for _, s := range all {
			if s.Parent != parent {
				continue
			}
			y, x, w := 8+row*line, label+float64(s.Began.Sub(from))*scale, max(1, float64(s.Took())*scale)
			color := "#4a80c4"
			if s.Resource["service.name"] == "holdfast" {
				color = "#e08a3c"
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text><rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/><text x="%.1f" y="%d" fill="#333">%.2f ms</text>`+"\n",
				8+names*depth, y+14, html.EscapeString(s.Name), x, y+2, w, row-6, color, x+w+5, y+14, s.Took().Seconds()*1000)
			line++
			draw(s.ID, depth+1)
		}
	}
	draw("", 0)
	return b.String() + "</svg>\n"
}
