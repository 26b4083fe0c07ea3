// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/google/renameio/v2"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

const (
	formatText = "text"
	formatJSON = "json"
)

// print writes a result as text or JSON. It returns an error unless all of it was written: a
// script must not take an empty file on a full disk for a token.
func (a *app) print(v any, text func(io.Writer)) error {
	var b bytes.Buffer
	if a.format == formatJSON {
		if err := writeJSON(&b, v); err != nil {
			return err
		}
	} else {
		var raw bytes.Buffer
		text(&raw)
		b.WriteString(wire.Visible(raw.String()))
	}
	if _, err := a.Stdout.Write(b.Bytes()); err != nil {
		return &untoldError{err}
	}
	return nil
}

// untoldError reports that the command was executed, but its result could not be written.
type untoldError struct{ err error }

func (e *untoldError) Error() string {
	return fmt.Sprintf("done, but the result cannot be written: %v", e.err)
}
func (e *untoldError) Unwrap() error { return e.err }

// writeJSON writes one object on one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// writePrivate puts a file that only this user may read in the place of the one with this name, whatever the mode of that was.
// Nobody ever sees a part of it.
func writePrivate(name, text string) error {
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o600), renameio.IgnoreUmask())
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // it was replaced, or the error is told
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// table writes rows in columns.
func table(w io.Writer, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, c)
		}
		fmt.Fprintln(t)
	})
	t.Flush() //nolint:errcheck // as little as Fprint's to a terminal
}

// failure is an error in JSON: the fields of an answer, and the exit code.
type failure struct {
	wire.Body
	Advice   string `json:"advice,omitempty"`
	ExitCode int    `json:"exit_code"`
	// Lines and Bytes are how much of a stream is certainly in the file; only append has them.
	Lines *int64 `json:"lines,omitempty"`
	Bytes *int64 `json:"bytes,omitempty"`
}

// fail prints an error and returns its exit code. In JSON it goes to the standard output, where
// scripts read the answer. It goes to the standard error if the standard output is taken, as by
// the command of run, or cannot be written.
func (a *app) fail(err error) int {
	code := exitCode(err)
	held := a.heldBy(err)
	if a.format == formatJSON {
		a.failJSON(err, held, code)
		return code
	}
	now := a.now()
	switch e, refused := errors.AsType[*wire.Error](err); {
	case held != nil:
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", wire.Visible(held.text(now)))
	case refused && !named(err):
		fmt.Fprintf(a.Stderr, "holdfast: %s%s\n", wire.Visible(a.topic()), wire.Visible(err.Error()))
		if e.Holder != nil {
			fmt.Fprintf(a.Stderr, "holdfast: %s is held by %s, %s, under token %d, %d waiting\n",
				wire.OneLine(string(e.Lock)), holderText(e.Holder), heldText(e.Holder.Since.Time(), now), e.Holder.Token, e.QueueLength)
		}
	default:
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", wire.Visible(err.Error()))
	}
	if tip := a.advice(err); tip != "" {
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", wire.OneLine(tip))
	}
	return code
}

// named reports whether the text of an error names what was asked for.
func named(err error) bool {
	_, call := errors.AsType[*clientlib.CallError](err)
	_, stream := errors.AsType[*streamError](err)
	_, usage := errors.AsType[*usageError](err)
	return call || stream || usage
}

func (a *app) failJSON(err error, held *heldError, code int) {
	f := failure{Advice: a.advice(err), ExitCode: code}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		f.Body = wire.BodyOf(e.Answer())
	} else {
		f.Body = wire.BodyOf(nil)
		f.Status = errorWord(err)
	}
	f.Message = err.Error()
	if held != nil {
		f.Holder, f.QueueLength, f.Message = held.holder, &held.queue, held.text(a.now())
	}
	f.Lock, f.File = cmp.Or(f.Lock, a.subjects[aLock]), cmp.Or(f.File, a.subjects[aFile])
	if e, ok := errors.AsType[*streamError](err); ok {
		f.Lines, f.Bytes = &e.lines, &e.bytes
	}
	if f.ClientID == "" {
		f.ClientID, f.RequestID = a.request.client, a.request.request
	}
	to := a.Stdout
	if _, untold := errors.AsType[*untoldError](err); untold || a.outputTaken {
		to = a.Stderr
	}
	writeJSON(to, f) //nolint:errcheck // there is nowhere else to report it
}

// errorWord returns the status for JSON of an error that is not an answer of a server.
func errorWord(err error) string {
	if s, ok := wire.StatusOf(err); ok {
		return s.String()
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return cluster.StatusInvalidArgument.String()
	}
	return cluster.StatusError.String()
}
