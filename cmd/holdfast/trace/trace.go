// SPDX-License-Identifier: Apache-2.0

// Package trace sends traces of some calls to a collector, by OTLP over gRPC.
//
// A call is traced if its caller says so, by the traceparent of a sampled trace (W3C Trace Context), or if it comes without one
// and chance chooses it. The server keeps the moments that its log of slow calls has as well, and spans are made of them when the
// call has been answered: nothing is measured for traces alone, and a call that is not traced costs one comparison.
//
//	acquire      what this server did for the call; its parent is the caller's span
//	  wait       in the queue of the lock
//	  queue      until its commit began: the file is verified and the call decided
//	  sync       until the log was durable
//	  check      until the read of the fence
//	  write      until the bytes were in the file, of an append
//	  push       until replicas had it, where answers wait for them
//	forward      what a replica spent on one attempt to have the primary execute the call
//
// No call waits for a trace: a report enters a bounded queue, or it is dropped and counted. One goroutine makes the spans and
// exports them; a collector that is slow or away holds up that goroutine only.
//
// Lock and file names are in the spans, so a collector has to be trusted like the server's log. Identities of callers and
// contents of files are not.
//
// It is the only package of a server that imports the SDK of OpenTelemetry.
package trace

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

const (
	// queued is how many reports may wait to become spans. A report takes some 400 bytes.
	queued = 1024
	// batch is how many spans are exported at once at least, unless they wait for longer than exportEvery.
	batch       = 512
	exportEvery = time.Second
	// exportWait bounds one export, and endWait what is exported when tracing ends.
	exportWait = 10 * time.Second
	endWait    = time.Second
)

// Config says whether and where a server sends traces.
type Config struct {
	// OTLP is the collector: host:port in plain text, or https://host:port. "" = nothing is traced.
	OTLP string
	// Sample is the share of calls without a traceparent that are traced, from 0 to 1; 0 = nothing is traced, whatever callers
	// send.
	Sample float64
}

// Counts is what a Recorder has counted since it began.
type Counts struct {
	// Taken and Dropped are reports: of calls that were traced, and of attempts to forward them.
	Taken, Dropped uint64
	// Exported and Failed are spans.
	Exported, Failed uint64
}

// Options say who traces.
type Options struct {
	Server  cluster.ServerID
	Version string
	Log     zerolog.Logger

	random func() float64                         // nil = chance
	dial   func(string) (sdk.SpanExporter, error) // nil = otlp
}

// Recorder traces calls as its Config says, which may change. Its methods are safe for use by several goroutines.
type Recorder struct {
	opt    Options
	traces serving.Traces
	counts counts

	mu  sync.Mutex
	is  Config
	now *pipeline // nil while nothing is traced
}

type counts struct{ taken, dropped, exported, failed atomic.Uint64 }

// New returns a Recorder that traces nothing until Configure is called. Close ends it.
func New(opt Options) *Recorder {
	if opt.random == nil {
		opt.random = rand.Float64
	}
	if opt.dial == nil {
		opt.dial = dialOTLP
	}
	return &Recorder{opt: opt}
}

// Traces returns what front ends ask for the trace of a call.
func (r *Recorder) Traces() *serving.Traces { return &r.traces }

// Counts returns what was counted.
func (r *Recorder) Counts() Counts {
	c := &r.counts
	return Counts{Taken: c.taken.Load(), Dropped: c.dropped.Load(), Exported: c.exported.Load(), Failed: c.failed.Load()}
}

// Configure has the calls that begin from now on traced like this. What was reported before goes where it was meant to. The
// error says why there can be no connection to the collector, ever; one that is away now is none. Then nothing is changed.
func (r *Recorder) Configure(c Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == r.is {
		return nil
	}
	var next *pipeline
	if c.OTLP != "" && c.Sample > 0 {
		exporter, err := r.opt.dial(c.OTLP)
		if err != nil {
			return err
		}
		next = newPipeline(r, c, exporter)
		go next.run()
	}
	if next == nil {
		r.traces.Set(nil)
	} else {
		r.traces.Set(next)
	}
	if r.now != nil {
		go r.now.close()
	}
	r.is, r.now = c, next
	return nil
}

// Close exports what is queued, for endWait at most, and ends tracing.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traces.Set(nil)
	if r.now != nil {
		r.now.close()
	}
	r.is, r.now = Config{}, nil
}

// pipeline traces calls under one Config. It is a serving.Tracer.
type pipeline struct {
	*Recorder
	config   Config
	exporter sdk.SpanExporter
	tracer   api.Tracer
	reports  chan report
	// stop is closed when no more reports are taken, and ended when run has returned. ctx ends what is exported then.
	stop, ended chan struct{}
	ctx         context.Context
	cancel      context.CancelFunc

	// Owned by run: spans that are not exported yet, and whether the last export failed.
	spans   []sdk.ReadOnlySpan
	failing bool
}

// Begin implements serving.Tracer.
func (p *pipeline) Begin(parent string) serving.Trace {
	if from := parse(parent); from.IsValid() {
		if !from.IsSampled() {
			return nil // its caller has decided
		}
		return &call{p: p, parent: from, trace: from.TraceID()}
	}
	if p.opt.random() >= p.config.Sample {
		return nil
	}
	return &call{p: p, trace: newTraceID()}
}

// offer queues a report, or drops it where the queue is full or closed.
func (p *pipeline) offer(r report) {
	select {
	case <-p.stop:
		p.counts.dropped.Add(1)
		return
	default:
	}
	select {
	case p.reports <- r:
		p.counts.taken.Add(1)
	default:
		p.counts.dropped.Add(1)
	}
}

// run makes spans of reports and exports them, until close is called.
func (p *pipeline) run() {
	defer close(p.ended)
	t := time.NewTicker(exportEvery)
	defer t.Stop()
	for {
		select {
		case r := <-p.reports:
			r.makeSpans(p.tracer)
			if len(p.spans) < batch {
				continue
			}
		case <-t.C:
		case <-p.stop:
			for len(p.reports) > 0 {
				r := <-p.reports
				r.makeSpans(p.tracer)
			}
			p.export()
			if err := p.exporter.Shutdown(p.ctx); err != nil {
				p.opt.Log.Debug().Err(err).Msg("the connection to the collector of traces")
			}
			return
		}
		p.export()
	}
}

// export sends the spans to the collector. Those that it does not take are lost, and counted.
func (p *pipeline) export() {
	if len(p.spans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, exportWait)
	defer cancel()
	err := p.exporter.ExportSpans(ctx, p.spans)
	if n := uint64(len(p.spans)); err != nil {
		p.counts.failed.Add(n)
	} else {
		p.counts.exported.Add(n)
	}
	switch {
	case err != nil && !p.failing:
		p.opt.Log.Warn().Err(err).Str("otlp", p.config.OTLP).Msg("traces are lost until their collector takes them: look whether it runs there")
	case err == nil && p.failing:
		p.opt.Log.Info().Str("otlp", p.config.OTLP).Msg("the collector takes traces again")
	}
	p.failing = err != nil
	clear(p.spans)
	p.spans = p.spans[:0]
}

// close ends the pipeline. It returns when what was queued is exported, or endWait is over.
func (p *pipeline) close() {
	close(p.stop)
	cut := time.AfterFunc(endWait, p.cancel)
	<-p.ended
	cut.Stop()
	p.cancel()
}

// OnEnd implements sdk.SpanProcessor. Spans end in the goroutine of run only.
func (p *pipeline) OnEnd(s sdk.ReadOnlySpan) { p.spans = append(p.spans, s) }

// OnStart implements sdk.SpanProcessor.
func (p *pipeline) OnStart(context.Context, sdk.ReadWriteSpan) {}

// ForceFlush implements sdk.SpanProcessor.
func (p *pipeline) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdk.SpanProcessor: close ends the pipeline.
func (p *pipeline) Shutdown(context.Context) error { return nil }
