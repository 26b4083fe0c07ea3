// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/trace/collector"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// memory is an exporter that keeps spans, or does what export says.
type memory struct {
	export func(context.Context) error // nil = take them
	mu     sync.Mutex
	spans  []sdk.ReadOnlySpan
}

func (m *memory) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if m.export != nil {
		if err := m.export(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spans = append(m.spans, spans...)
	return nil
}

func (m *memory) Shutdown(context.Context) error { return nil }

// recording returns a Recorder that traces into m, with these chances.
func recording(t *testing.T, m *memory, sample float64, log *bytes.Buffer, chances ...float64) *Recorder {
	t.Helper()
	opt := Options{Server: 1, Log: zerolog.Nop(), dial: func(string) (sdk.SpanExporter, error) { return m, nil }}
	if log != nil {
		opt.Log = zerolog.New(log)
	}
	n := 0
	opt.random = func() float64 { n++; return chances[(n-1)%len(chances)] }
	r := New(opt)
	if err := r.Configure(Config{OTLP: "collector:4317", Sample: sample}); err != nil {
		t.Fatal(err)
	}
	return r
}

// stages are those of an append that took 10 ms in each stage.
func stages() serving.Stages {
	at := func(ms int) time.Time { return time.UnixMilli(1_800_000_000_000 + int64(ms)) }
	return serving.Stages{
		Op: "append", Status: cluster.StatusOK, Lock: "l", File: "f", Epoch: 3,
		Put: at(0), Ready: at(10), Commit: at(20), Synced: at(30), Checked: at(40), Answered: at(50), Writes: true,
	}
}

func TestWhoIsTraced(t *testing.T) {
	for _, x := range []struct {
		name, parent string
		sample       float64
		chance       float64
		traced       bool
		trace        string // "" = a new one
	}{
		{"by chance", "", 0.01, 0.0099, true, ""},
		{"not by chance", "", 0.01, 0.01, false, ""},
		{"all", "", 1, 0.999999, true, ""},
		{"the caller says so", sampledParent, 0.01, 0.99, true, "0af7651916cd43dd8448eb211c80319c"},
		{"the caller says no", unsampledParent, 1, 0, false, ""},
		{"malformed, by chance", "00-xyz", 0.5, 0.1, true, ""},
		{"malformed, not by chance", "00-xyz", 0.5, 0.9, false, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := recording(t, &memory{}, x.sample, nil, x.chance)
			defer r.Close()
			c := r.Traces().Tracer().Begin(x.parent)
			if (c != nil) != x.traced {
				t.Fatalf("traced: %v, want %v", c != nil, x.traced)
			}
			if c == nil {
				return
			}
			if id := c.ID(); x.trace != "" && id != x.trace || len(id) != 32 || strings.Trim(id, "0") == "" {
				t.Errorf("trace %q, want %q", id, x.trace)
			}
		})
	}
}

// TestNothingIsMadeWhereNothingIsTraced: without a collector, or with a share of 0, no call has a trace, whatever its caller
// sends, and nothing connects.
func TestNothingIsMadeWhereNothingIsTraced(t *testing.T) {
	for _, c := range []Config{{}, {OTLP: "collector:4317"}, {Sample: 1}} {
		r := New(Options{dial: func(string) (sdk.SpanExporter, error) { t.Error("an exporter is made"); return nil, errors.New("none") }})
		if err := r.Configure(c); err != nil {
			t.Fatal(err)
		}
		if r.Traces().Tracer() != nil {
			t.Errorf("%+v: calls are traced", c)
		}
		ctx := t.Context()
		if got := r.Traces().Begin(ctx, sampledParent); got != ctx || serving.TraceOf(got) != nil {
			t.Errorf("%+v: a call has a trace", c)
		}
		r.Close()
	}
}

// TestHostileParents: what is no traceparent counts as none, and nothing of it gets into a span.
func TestHostileParents(t *testing.T) {
	r := recording(t, &memory{}, 1e-9, nil, 0.5)
	defer r.Close()
	for _, parent := range []string{
		"", "-", "00", "00-", sampledParent[:54], sampledParent + "0", sampledParent + "-", sampledParent + "-00", strings.ToUpper(sampledParent),
		"ff" + sampledParent[2:], "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x", strings.Replace(sampledParent, "-", "_", 1), sampledParent + "\r\nevil: 1",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-" + strings.Repeat("x", maxParent), strings.Repeat("0", 1<<20), "\x00\xff",
	} {
		if c := r.Traces().Tracer().Begin(parent); c != nil {
			t.Errorf("%.80q is taken", parent)
		}
	}
}

// FuzzParent wants what is taken of a traceparent to be valid, and no input to do harm.
func FuzzParent(f *testing.F) {
	for _, seed := range []string{"", sampledParent, unsampledParent, "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "00-xyz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, parent string) {
		s := parse(parent)
		if !s.IsValid() {
			if s.HasTraceID() || s.HasSpanID() || s.IsSampled() {
				t.Errorf("%q is none, and has %+v", parent, s)
			}
			return
		}
		if len(parent) > maxParent {
			t.Errorf("%d bytes are taken", len(parent))
		}
		again := parse(parentOf(s))
		if again.TraceID() != s.TraceID() || again.SpanID() != s.SpanID() || again.IsSampled() != s.IsSampled() {
			t.Errorf("%q is %+v, and sent on it is %+v", parent, s, again)
		}
	})
}

// TestSpansOfACall wants the stages of a call below its span, in order and without gaps.
func TestSpansOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := recording(t, m, 1, nil, 0)
		r.Traces().Tracer().Begin(sampledParent).Report(stages())
		r.Close()
		if len(m.spans) != 6 {
			t.Fatalf("%d spans", len(m.spans))
		}
		top := m.spans[5]
		if top.Name() != "append" || top.Parent().SpanID().String() != "b7ad6b7169203331" || !top.Parent().IsRemote() ||
			top.EndTime().Sub(top.StartTime()) != 50*time.Millisecond {
			t.Errorf("the call is %s below %v for %v", top.Name(), top.Parent().SpanID(), top.EndTime().Sub(top.StartTime()))
		}
		at := top.StartTime()
		for i, name := range []string{"wait", "queue", "sync", "check", "write"} {
			s := m.spans[i]
			if s.Name() != name || s.Parent().SpanID() != top.SpanContext().SpanID() || s.SpanContext().TraceID() != top.SpanContext().TraceID() {
				t.Errorf("span %d is %s below %v", i, s.Name(), s.Parent().SpanID())
			}
			if !s.StartTime().Equal(at) || s.EndTime().Sub(at) != 10*time.Millisecond {
				t.Errorf("%s lasts from %v to %v", name, s.StartTime(), s.EndTime())
			}
			at = s.EndTime()
		}
		if got := r.Counts(); got != (Counts{Taken: 1, Exported: 6}) {
			t.Errorf("counted %+v", got)
		}
	})
}

// TestForwardIsTheParent: the server that a call is forwarded to gets the span of the attempt as its parent.
func TestForwardIsTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := recording(t, m, 1, nil, 0)
		c := r.Traces().Tracer().Begin("")
		for _, status := range []cluster.Status{cluster.StatusUnknown, cluster.StatusOK} {
			parent, end := c.Forward(2)
			time.Sleep(time.Second)
			end(status)
			time.Sleep(2 * exportEvery)
			synctest.Wait()
			s := m.spans[len(m.spans)-1]
			if s.Name() != "forward" || parse(parent).SpanID() != s.SpanContext().SpanID() || parse(parent).TraceID() != s.SpanContext().TraceID() || !parse(parent).IsSampled() {
				t.Errorf("%s was sent, and the span is %v", parent, s.SpanContext())
			}
			if c.ID() != s.SpanContext().TraceID().String() || s.EndTime().Sub(s.StartTime()) != time.Second {
				t.Errorf("the span is of trace %v, and took %v", s.SpanContext().TraceID(), s.EndTime().Sub(s.StartTime()))
			}
		}
		r.Close()
	})
}

// TestNobodyWaitsForTheCollector: while an export hangs, reports are taken until the queue is full, and then dropped and counted.
func TestNobodyWaitsForTheCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{export: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		r := recording(t, m, 1, nil, 0)
		began := time.Now()
		report := func(n int) {
			for range n {
				r.Traces().Tracer().Begin("").Report(stages())
			}
		}
		report(1)
		time.Sleep(exportEvery + exportEvery/2) // the export hangs
		report(queued + 10)
		if took := time.Since(began); took != exportEvery+exportEvery/2 {
			t.Errorf("reports took %v", took)
		}
		synctest.Wait()
		if got := r.Counts(); got.Dropped != 10 || got.Taken != queued+1 {
			t.Errorf("counted %+v, want 10 dropped", got)
		}
		time.Sleep(exportWait)
		synctest.Wait()
		if got := r.Counts(); got.Failed == 0 || got.Exported != 0 {
			t.Errorf("counted %+v: the export has failed", got)
		}
		end := time.Now()
		r.Close()
		if took := time.Since(end); took > endWait {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestChangesWhileItRuns: what a call began with goes where it was meant to, and the log tells once that a collector is away.
func TestChangesWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		m := &memory{export: func(context.Context) error {
			if away {
				return errors.New("nobody is there")
			}
			return nil
		}}
		log := &bytes.Buffer{}
		r := recording(t, m, 1, log, 0)
		c := r.Traces().Tracer().Begin("")
		for range 3 {
			c.Report(stages())
			time.Sleep(2 * exportEvery)
		}
		synctest.Wait()
		away = false
		c.Report(stages())
		time.Sleep(2 * exportEvery)
		synctest.Wait()
		if n := strings.Count(log.String(), "traces are lost"); n != 1 || strings.Count(log.String(), "takes traces again") != 1 {
			t.Errorf("the log has:\n%s", log)
		}
		c.Report(stages())
		if err := r.Configure(Config{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(endWait)
		synctest.Wait()
		if got := r.Counts(); got.Exported != 12 || got.Failed != 18 {
			t.Errorf("counted %+v: what was queued at the change is exported", got)
		}
		c.Report(stages()) // nobody takes it
		if got := r.Counts(); got.Dropped != 1 || r.Traces().Tracer() != nil {
			t.Errorf("counted %+v after the end", got)
		}
		r.Close()
	})
}

// TestOTLP sends spans to a collector over a connection.
func TestOTLP(t *testing.T) {
	c := collector.New(t)
	r := New(Options{Server: 7, Version: "v1", Log: zerolog.Nop()})
	if err := r.Configure(Config{OTLP: c.Addr, Sample: 1}); err != nil {
		t.Fatal(err)
	}
	r.Traces().Tracer().Begin(sampledParent).Report(stages())
	r.Close()
	all := c.Spans()
	if len(all) != 6 {
		t.Fatalf("the collector has %+v", all)
	}
	s := all[slices.IndexFunc(all, func(s collector.Span) bool { return s.Name == "append" })]
	if s.Resource["service.name"] != "holdfast" || s.Resource["holdfast.server"] != "7" || s.Attributes["holdfast.lock"] != "l" || s.Attributes["holdfast.status"] != "OK" {
		t.Errorf("the span is %+v", s)
	}
}

func TestCheckOTLP(t *testing.T) {
	for address, good := range map[string]bool{
		"localhost:4317": true, "https://collector.example.com:4317": true, "[::1]:4317": true,
		"localhost": false, "http://localhost:4317": false, "https://localhost:4317/v1/traces": false, "": false, ":": false,
	} {
		if err := CheckOTLP(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
