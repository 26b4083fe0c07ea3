// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

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
		b.WriteString(visible(raw.String()))
	}
	if _, err := a.Stdout.Write(b.Bytes()); err != nil {
		return &untoldError{err}
	}
	return nil
}

// visible makes text of other clients harmless to a terminal: it replaces control characters,
// and characters that change the direction of text, by their escapes.
func visible(s string) string {
	if !strings.ContainsFunc(s, unseen) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unseen(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unseen reports whether a rune is a control or format character other than a newline.
func unseen(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }

// oneLine is visible for text that must stay on one line: it escapes newlines, too.
func oneLine(s string) string { return strings.ReplaceAll(visible(s), "\n", `\n`) }

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

// failure is an error in JSON: the fields of every answer.
type failure struct {
	wire.Body
	Advice   string `json:"advice"`
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
	if a.format == formatJSON {
		f := failure{Advice: a.advice(err), ExitCode: code}
		if e, ok := errors.AsType[*wire.Error](err); ok {
			f.Body = wire.BodyOf(e.Answer())
		} else {
			f.Body = wire.BodyOf(nil)
			f.Status = errorWord(err)
		}
		if e, ok := errors.AsType[*clientlib.HeldError](err); ok {
			f.Lock, f.Holder, f.QueueLength = string(e.Lock), e.Holder, uint32(e.QueueLength)
		}
		if e, ok := errors.AsType[*streamError](err); ok {
			f.Lines, f.Bytes = &e.lines, &e.bytes
		}
		if f.ClientID == "" {
			f.ClientID, f.RequestID = a.request.client, a.request.request
		}
		f.Message = err.Error()
		to := a.Stdout
		if _, untold := errors.AsType[*untoldError](err); untold || a.outputTaken {
			to = a.Stderr
		}
		writeJSON(to, f) //nolint:errcheck // there is nowhere else to report it
		return code
	}
	fmt.Fprintf(a.Stderr, "holdfast: %s\n", visible(err.Error()))
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Holder != nil {
		fmt.Fprintf(a.Stderr, "holdfast: %s is held by %s under token %d, %d waiting\n", e.Lock, visible(holderText(e.Holder)), e.Holder.Token, e.QueueLength)
	}
	if tip := a.advice(err); tip != "" {
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", tip)
	}
	return code
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
