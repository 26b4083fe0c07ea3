// SPDX-License-Identifier: Apache-2.0

package protected_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/primary/protected"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// fixture is the files of a claimed term, without a primary.
type fixture struct {
	disk     *volumetest.Disk
	files    *protected.Files
	fenced   error // returned by each check
	verified chan *protected.Verification
	foreign  chan error
}

func (x *fixture) Check() error { return x.fenced }

func (x *fixture) Verified(v *protected.Verification) { x.verified <- v }

func (x *fixture) Foreign(_ cluster.FileName, why error) { x.foreign <- why }

// inBubble calls f with a writer of the file f, which is not bound and was verified.
func inBubble(t *testing.T, f func(t *testing.T, x *fixture, w *protected.Writer)) {
	synctest.Test(t, func(t *testing.T) {
		x := &fixture{disk: volumetest.New(1), verified: make(chan *protected.Verification, 10), foreign: make(chan error, 10)}
		primarytest.Init(t, x.disk.Host(9, volumetest.ProfileLocal()), primarytest.Members())
		v, term := primarytest.Claim(t, x.disk.Host(1, volumetest.ProfileLocal()), volume.Options{Server: 1})
		x.files = protected.New(x, term, zerolog.New(t.Output()))
		w := x.files.Start("f", locktable.FileState{}, nil)
		w.Verify(locktable.OpAppend, locktable.FileState{}, false)
		if v := <-x.verified; v.Err != nil || v.Writer != w || !v.Facts.Made || !v.Answers(locktable.OpBind) || v.Answers(locktable.OpUnbind) {
			t.Fatalf("of a new file: %+v", v)
		}
		f(t, x, w)
		term.End(errors.New("the test is over")) //nolint:errcheck // its cause
		x.files.Wait()
		if err := errors.Join(term.Release(), v.Close()); err != nil {
			t.Error(err)
		}
	})
}

// add appends to a file, as a commit does.
func add(w *protected.Writer, lsn cluster.LSN, offset int64, data string) <-chan locktable.Outcome {
	answer := make(chan locktable.Outcome, 1)
	w.Expect()
	w.Append(&locktable.Record{
		LSN: lsn, Kind: locktable.KindAppend, Client: "c", Request: cluster.RequestID(lsn),
		File: w.Name(), Offset: offset, Length: int64(len(data)), Data: []byte(data),
	}, func(out locktable.Outcome) { answer <- out })
	return answer
}

func TestAppendsAreKeptUntilTheyAreDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture, w *protected.Writer) {
		for i, data := range []string{"one\n", "two\n"} {
			if out := <-add(w, cluster.LSN(10+i), int64(4*i), data); out.Status != cluster.StatusOK || w.Pending() {
				t.Errorf("append %d: %+v, pending %v", i, out, w.Pending())
			}
		}
		if got := x.disk.Files("files/")["files/f"]; string(got) != "one\ntwo\n" {
			t.Errorf("the file holds %q", got)
		}
		for lsn, want := range map[cluster.LSN]int{9: 0, 10: 1, 11: 2} {
			if got := x.files.Kept(lsn); len(got) != want {
				t.Errorf("up to LSN %d %d appends are kept, want %d", lsn, len(got), want)
			}
		}
		x.files.Sync(t.Context())
		if got := x.files.Kept(11); len(got) != 0 || !w.Clean() {
			t.Errorf("after a sync %d appends are kept, clean: %v", len(got), w.Clean())
		}
	})
}

func TestAForeignFileIsReportedBeforeItsAppendsAreSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture, w *protected.Writer) {
		if err := x.disk.Write("files/f", 0, []byte("foreign\n")); err != nil {
			t.Fatal(err)
		}
		if out := <-add(w, 10, 0, "one\n"); out.Status != cluster.StatusFileQuarantined || !out.Committed {
			t.Errorf("answered %+v", out)
		}
		if !w.Unsettled(true) || w.Unsettled(false) {
			t.Errorf("unsettled: %v, with the quarantine in the table %v", w.Unsettled(true), w.Unsettled(false))
		}
		if why := <-x.foreign; !errors.Is(why, volume.ErrForeign) {
			t.Errorf("reported %v", why)
		}
		w.Verify(locktable.OpAppend, locktable.FileState{}, true)
		if v := <-x.verified; v.Refusal(true) != cluster.StatusFileQuarantined || v.Refusal(false) != cluster.StatusInvalidArgument {
			t.Errorf("verified: %+v", v)
		}
	})
}

// A later term may have written to a file that looks foreign to one that is fenced.
func TestAFencedTermReportsNoFile(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture, w *protected.Writer) {
		if err := x.disk.Write("files/f", 0, []byte("of a later term\n")); err != nil {
			t.Fatal(err)
		}
		x.fenced = errors.New("fenced")
		answer := add(w, 10, 0, "one\n")
		synctest.Wait()
		if len(answer) > 0 || len(x.foreign) > 0 || !w.Pending() {
			t.Errorf("answered %d, reported %d", len(answer), len(x.foreign))
		}
	})
}

func TestAWriterThatEndedAnswersUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture, w *protected.Writer) {
		x.files.Stop(w)
		synctest.Wait()
		if out := <-add(w, 10, 0, "one\n"); out.Status != cluster.StatusUnknown || out.Committed {
			t.Errorf("an append: %+v", out)
		}
		answer := make(chan locktable.Outcome, 1)
		protected.DeliverAfter([]*protected.Writer{w}, true, locktable.Outcome{Status: cluster.StatusOK}, func(out locktable.Outcome) { answer <- out })
		if out := <-answer; out.Status != cluster.StatusUnknown {
			t.Errorf("an answer after its writes: %+v", out)
		}
		w.Verify(locktable.OpAppend, locktable.FileState{}, false)
		if v := <-x.verified; v.Err == nil || v.Refusal(true) != cluster.StatusStorageUnavailable {
			t.Errorf("a verification: %+v", v)
		}
		if got := x.files.Kept(10); len(got) != 0 {
			t.Errorf("%d appends are kept", len(got))
		}
	})
}
