// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuckReader takes lines when it is let.
type stuckReader struct {
	let   chan struct{} // closed: from now on
	lines bytes.Buffer
}

func (r *stuckReader) Write(b []byte) (int, error) {
	<-r.let
	return r.lines.Write(b)
}

// Nobody waits for who reads the log: lines beyond the queue are dropped, counted, and that
// is said.
func TestLogWaitsForNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &stuckReader{let: make(chan struct{})}
		a := &app{}
		a.Stderr = r
		log, _ := a.logger("info", formatJSON)
		go func() { // in vain, should logging wait
			time.Sleep(time.Hour)
			close(r.let)
		}()
		began := time.Now()
		const lines = 3 * logLines
		for i := range lines {
			log.Info().Int("n", i).Msg("")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("logging waited %v for the reader", took)
		}
		<-r.let
		synctest.Wait()
		log.Info().Int("n", lines).Msg("")
		a.flush()
		told, dropped, last := 0, 0, -1
		for d := json.NewDecoder(&r.lines); d.More(); {
			line := struct{ N, Dropped int }{N: -1}
			if err := d.Decode(&line); err != nil {
				t.Fatal(err)
			}
			dropped += line.Dropped
			if line.N >= 0 {
				told++
				if line.N <= last {
					t.Errorf("line %d after line %d", line.N, last)
				}
				last = line.N
			}
		}
		if told+dropped != lines+1 || told < logLines || last != lines {
			t.Errorf("%d lines told and %d said to be dropped, the last is %d, of %d", told, dropped, last, lines+1)
		}
	})
}

// A server that ends does not wait for its reader for ever either.
func TestEndWaitsForNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &stuckReader{let: make(chan struct{})}
		q := newLogQueue(r, "%d")
		_, _ = q.Write([]byte("{}\n"))
		began := time.Now()
		q.Close(logFlush)
		if took := time.Since(began); took != logFlush {
			t.Errorf("the end took %v", took)
		}
		close(r.let)
	})
}

// A server that cannot serve says why and ends, whether or not that is read.
func TestFailureWaitsForNoReader(t *testing.T) {
	for _, format := range []string{formatText, formatJSON} {
		r := &stuckReader{let: make(chan struct{})}
		code := make(chan int, 1)
		go func() {
			w := Env{Stdin: strings.NewReader(""), Stdout: r, Stderr: r, Getenv: func(string) string { return "" }}
			code <- Main([]string{"server", "--id", "1", "--volume", t.TempDir(), "-o", format}, w)
		}()
		select {
		case got := <-code:
			if got != exitFailed {
				t.Errorf("%s: the exit code is %d", format, got)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the server that failed waits for the reader of its words", format)
		}
		close(r.let)
	}
}
