// SPDX-License-Identifier: Apache-2.0

package primary_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/history"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/historydir"
	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// chronicle is what all files of a history say, in order, in few words.
func chronicle(t *testing.T, d *volumetest.Disk) (words []string) {
	t.Helper()
	files := d.Files("history/")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for line := range strings.Lines(string(files[name])) {
			l, err := history.ParseLine([]byte(strings.TrimSpace(line)))
			if err != nil {
				t.Errorf("%s: %q: %v", name, line, err)
			}
			switch e := &l.End; l.Kind {
			case history.KindEnd:
				words = append(words, fmt.Sprintf("%s:%d %v", e.Lock, e.Token, e.Why))
			case history.KindSkipped:
				words = append(words, fmt.Sprintf("skipped %d in %d-%d", l.Skip.Count, l.Skip.From, l.Skip.To))
			case history.KindGap:
				words = append(words, fmt.Sprintf("gap %d-%d", l.Skip.From, l.Skip.To))
			}
		}
	}
	return words
}

func wantChronicle(t *testing.T, d *volumetest.Disk, want ...string) {
	t.Helper()
	if got := chronicle(t, d); !slices.Equal(got, want) {
		t.Errorf("the history says %q, want %q", got, want)
	}
}

func TestHistoryTellsWhatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		defer x.end() //nolint:errcheck // it is stopped
		own := x.ok(acquire("c1", 1, "own", 0)).Token
		x.ok(appendTo("c1", 2, "own", own, "log", "hello"))
		x.ok(release("c1", 3, "own", own))
		if r := x.p.Recent(); len(r.Ends) != 1 || r.Ends[0].Append.Length != 5 {
			t.Errorf("what is not written yet: %+v", r)
		}
		other := x.ok(acquire("c1", 4, "other", 0)).Token
		x.ok(release("c3", 1, "other", other))
		broken := x.ok(acquire("c1", 5, "broken", 0)).Token
		x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "broken", Actor: "me", Reason: "it hangs"})
		expired := x.ok(acquire("c1", 6, "expired", 0)).Token
		time.Sleep(40 * time.Second)
		wantChronicle(t, d, fmt.Sprintf("own:%d released", own), fmt.Sprintf("other:%d released_by_other", other),
			fmt.Sprintf("broken:%d broken", broken), fmt.Sprintf("expired:%d expired", expired))
		if r := x.p.Recent(); len(r.Ends) != 0 || r.From != x.p.LSN() || x.p.HistoryTrouble() != "" {
			t.Errorf("what is not written: %+v, %s", r, x.p.HistoryTrouble())
		}
	})
}

// A line leaves like an answer: durable, and then checked.
func TestNoHistoryBeforeTheCheck(t *testing.T) {
	for op, name := range map[string]string{volumetest.OpDatasync: "epochs/", volumetest.OpReadAt: "epochs/"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				token := x.ok(acquire("c1", 1, "l", 0)).Token
				gate := volumetest.NewGate()
				x.host.SetHook(on(op, name, volumetest.Pause(gate)))
				answer := x.later(release("c1", 2, "l", token))
				time.Sleep(3 * time.Second)
				x.unanswered(answer, "before the check")
				if r := x.p.Recent(); len(r.Ends) > 0 {
					t.Errorf("told %+v while %s hangs", r.Ends, op)
				}
				wantChronicle(t, d)
				x.host.SetHook(nil)
				gate.Resume()
				<-answer
				time.Sleep(3 * time.Second)
				wantChronicle(t, d, fmt.Sprintf("l:%d released", token))
				x.end() //nolint:errcheck // it is stopped
			})
		})
	}
}

// pair acquires and releases a lock.
func (x *term) pair(id cluster.RequestID, lock cluster.LockName) string {
	x.t.Helper()
	token := x.ok(acquire("c1", id, lock, 0)).Token
	x.ok(release("c1", id+1, lock, token))
	return fmt.Sprintf("%s:%d released", lock, token)
}

// The next primary tells what the one before had no time for, from its own table's memory or
// from the log, once.
func TestTheNextPrimaryCompletesTheHistory(t *testing.T) {
	for _, warm := range []bool{true, false} {
		t.Run(fmt.Sprintf("warm %v", warm), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				x := serve(t, d, 1, primary.Options{})
				first := x.pair(1, "a")
				time.Sleep(3 * time.Second)
				w := &volume.WarmState{}
				s, err := x.p.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.At, w.Table = s.At, s.Table
				second := x.pair(3, "b")
				x.kill()
				wantChronicle(t, d, first)
				if !warm {
					w = nil
				}
				y := serve(t, d, 2, primary.Options{Warm: w})
				if r := y.p.Recent(); len(r.Ends) == 0 || r.Ends[len(r.Ends)-1].Lock != "b" {
					t.Errorf("before it is written: %+v", r)
				}
				third := y.pair(5, "c")
				time.Sleep(3 * time.Second)
				wantChronicle(t, d, first, second, third)
				y.end() //nolint:errcheck // it is stopped
				z := serve(t, d, 3, primary.Options{})
				defer z.end() //nolint:errcheck // it is stopped
				time.Sleep(3 * time.Second)
				wantChronicle(t, d, first, second, third)
			})
		})
	}
}

// One record may end many grants. Where a crash left the lines of some, the next primary tells the
// others, or says that it does not know them.
func TestTheNextPrimaryCompletesARecord(t *testing.T) {
	for name, known := range map[string]bool{"the log has it": true, "nobody knows it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk(t)
				timing := leftHeld(t, d, 3)
				y := serve(t, d, 2, primary.Options{Timing: timing})
				time.Sleep(3 * time.Second)
				all := chronicle(t, d)
				if len(all) != 3 {
					t.Fatalf("the history says %q", all)
				}
				s, err := y.p.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				y.kill()
				left := leaveLines(t, d, 2)
				wantChronicle(t, d, all[0])
				opt, want := primary.Options{}, slices.Concat(all[:1], all) // once more, for nobody knows what stood behind it
				if !known {
					opt.Warm = &volume.WarmState{At: s.At, Table: s.Table}
					line, err := history.ParseLine([]byte(left))
					if err != nil {
						t.Fatal(err)
					}
					want = []string{all[0], fmt.Sprintf("gap %d-%d", line.End.LSN, s.At.LSN)}
				}
				z := serve(t, d, 3, opt)
				defer z.end() //nolint:errcheck // it is stopped
				time.Sleep(3 * time.Second)
				wantChronicle(t, d, want...)
			})
		})
	}
}

// An older binary wrote into the head of its next file that a record was told, between two of the many
// grants that it had cleared. That is no reason to call all that ended before unknown.
func TestTheRecordOfAnOlderBinaryIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		early := x.pair(1, "early")
		for i := range cluster.RequestID(3) {
			x.ok(acquire("c1", i+3, cluster.LockName(fmt.Sprint("l", i)), 0))
		}
		time.Sleep(3 * time.Second)
		x.end() //nolint:errcheck // it is stopped
		timing := cluster.DefaultTiming()
		timing.Policy = cluster.PolicyClear
		y := serve(t, d, 2, primary.Options{Timing: timing})
		time.Sleep(3 * time.Second)
		s, err := y.p.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		y.kill()
		files := d.Files("history/")
		newest := slices.Max(slices.Collect(maps.Keys(files)))
		lines := slices.Collect(strings.Lines(string(files[newest])))
		if len(lines) < 4 {
			t.Fatalf("the history says %q", lines)
		}
		first, err1 := history.ParseLine([]byte(strings.TrimSpace(lines[0])))
		end, err2 := history.ParseLine([]byte(strings.TrimSpace(lines[1])))
		if err1 != nil || err2 != nil || end.Kind != history.KindEnd {
			t.Fatalf("the history says %q: %v, %v", lines, err1, err2)
		}
		leaveLines(t, d, 2)
		next := first.Head
		next.N, next.After = next.N+1, end.End.LSN
		rest := append(history.AppendHead(nil, next), lines[2]+lines[3]...)
		if err := d.Write(historydir.Path(sidelog.Name(next.File)), 0, rest); err != nil {
			t.Fatal(err)
		}
		told := chronicle(t, d)
		if told[0] != early {
			t.Fatalf("the history says %q", told)
		}
		z := serve(t, d, 3, primary.Options{Warm: &volume.WarmState{At: s.At, Table: s.Table}})
		defer z.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		wantChronicle(t, d, append(told, fmt.Sprintf("gap %d-%d", end.End.LSN, s.At.LSN))...)
	})
}

// leftHeld has a primary grant many locks and die, and returns the timing of one that clears them.
func leftHeld(t *testing.T, d *volumetest.Disk, many cluster.RequestID) cluster.Timing {
	t.Helper()
	x := serve(t, d, 1, primary.Options{})
	for i := range many {
		x.ok(acquire("c1", i+1, cluster.LockName(fmt.Sprint("l", i)), 0))
	}
	x.kill()
	timing := cluster.DefaultTiming()
	timing.Policy = cluster.PolicyClear
	return timing
}

// leaveLines cuts the newest file of the history off behind so many lines, and returns the last.
func leaveLines(t *testing.T, d *volumetest.Disk, n int) (last string) {
	t.Helper()
	files := d.Files("history/")
	newest := slices.Max(slices.Collect(maps.Keys(files)))
	lines := slices.Collect(strings.Lines(string(files[newest])))[:n]
	if err := d.Truncate(newest, int64(len(strings.Join(lines, "")))); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(lines[n-1])
}

// Whoever completes a record that ended many grants may be cut off in the middle, too.
func TestARecordIsCompletedByAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		timing := leftHeld(t, d, 3)
		y := serve(t, d, 2, primary.Options{Timing: timing})
		time.Sleep(3 * time.Second)
		all := chronicle(t, d)
		y.kill()
		leaveLines(t, d, 2) // its head, one end
		z := serve(t, d, 1, primary.Options{})
		time.Sleep(3 * time.Second)
		z.kill()
		leaveLines(t, d, 1) // its head
		last := serve(t, d, 2, primary.Options{})
		defer last.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		wantChronicle(t, d, slices.Concat(all[:1], all)...)
	})
}

// However small files are, one has all that a record ended: another one begins behind it.
func TestARecordIsToldByOneFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		const many = 5000 // more than one write takes
		timing := leftHeld(t, d, many)
		y := serve(t, d, 2, primary.Options{Timing: timing, History: primary.HistoryOptions{FileBytes: 1}})
		time.Sleep(3 * time.Second)
		if r := y.p.Recent(); len(r.Ends) != 0 || r.From != y.p.LSN() {
			t.Errorf("%d ends are not told from LSN %d on", len(r.Ends), r.From)
		}
		y.pair(many+1, "later")
		time.Sleep(3 * time.Second)
		y.kill()
		most := 0
		for _, b := range d.Files("history/") {
			most = max(most, strings.Count(string(b), `{"kind":"end"`))
		}
		if n := len(d.Files("history/")); most != many || n < 2 {
			t.Errorf("%d files, one of which tells of %d ends", n, most)
		}
	})
}

// A record may end more grants than one write takes, and the next write may fail and begin another
// file: that tells the record again as a whole.
func TestARecordOfManyWritesIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		const many = 5000
		timing := leftHeld(t, d, many)
		y := claim(t, d, 2, primary.Options{Timing: timing})
		y.host.SetHook(volumetest.AtOp(volumetest.OpWriteAt, "history/", 2, volumetest.FailBefore(syscall.EIO)))
		y.serving()
		time.Sleep(time.Minute)
		y.kill()
		if n := len(d.Files("history/")); n < 2 {
			t.Fatalf("%d files", n)
		}
		leaveLines(t, d, 1)
		z := serve(t, d, 1, primary.Options{})
		defer z.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		told := slices.Compact(slices.Sorted(slices.Values(chronicle(t, d))))
		if len(told) != many {
			t.Errorf("%d of %d ends are told", len(told), many)
		}
	})
}

func TestTheHistorySaysWhatNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{History: primary.HistoryOptions{Interval: time.Hour}})
		x.pair(1, "a")
		s, err := x.p.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := x.pair(3, "b")
		x.kill()
		y := serve(t, d, 2, primary.Options{Warm: &volume.WarmState{At: s.At, Table: s.Table}})
		defer y.end() //nolint:errcheck // it is stopped
		time.Sleep(3 * time.Second)
		wantChronicle(t, d, fmt.Sprintf("gap 1-%d", s.At.LSN), b)
	})
}

func TestManyReleasesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{History: primary.HistoryOptions{Rate: 2}})
		defer x.end() //nolint:errcheck // it is stopped
		var pairs []string
		for i := range cluster.RequestID(5) {
			pairs = append(pairs, x.pair(2*i+1, "l"))
		}
		token := x.ok(acquire("c1", 20, "l", 0)).Token
		x.ok(&locktable.Request{Op: locktable.OpBreak, Client: "op", ID: 1, Lock: "l", Actor: "me", Reason: "it hangs"})
		time.Sleep(3 * time.Second)
		from := token - 5 // the releases of the last three pairs
		wantChronicle(t, d, fmt.Sprintf("skipped 3 in %d-%d", from, token-1), pairs[0], pairs[1], fmt.Sprintf("l:%d broken", token))
	})
}

func TestHistoryErrorsDeposeNobody(t *testing.T) {
	for name, action := range map[string]volumetest.Action{
		"not done": volumetest.FailBefore(syscall.EIO), "done": volumetest.FailAfter(syscall.EIO), "no space": volumetest.FailBefore(syscall.ENOSPC),
	} {
		for _, op := range []string{volumetest.OpOpen, volumetest.OpWriteAt, volumetest.OpSyncDir, volumetest.OpReadDir, volumetest.OpDatasync} {
			t.Run(op+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDisk(t)
					x := serve(t, d, 1, primary.Options{History: primary.HistoryOptions{FileBytes: 100}})
					defer x.end() //nolint:errcheck // it is stopped
					x.host.SetHook(on(op, "history", action))
					a := x.pair(1, "a")
					time.Sleep(2500 * time.Millisecond)
					b := x.pair(3, "b")
					time.Sleep(2500 * time.Millisecond)
					if op != volumetest.OpDatasync && op != volumetest.OpOpen && x.p.HistoryTrouble() == "" {
						t.Error("nothing is said")
					}
					x.host.SetHook(nil)
					c := x.pair(5, "c")
					time.Sleep(2 * time.Minute)
					if got := x.p.HistoryTrouble(); got != "" || x.p.State() != primary.StateServing {
						t.Errorf("afterwards: %s", got)
					}
					got := chronicle(t, d)
					for _, want := range []string{a, b, c} {
						if !slices.Contains(got, want) {
							t.Errorf("%s is not told: %q", want, got)
						}
					}
					if strings.Contains(fmt.Sprint(got), "gap") {
						t.Errorf("a gap where all is known: %q", got)
					}
				})
			})
		}
	}
}

// A share that hangs under the history holds up nobody, and memory is bounded.
func TestHistoryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		gate := volumetest.NewGate()
		x.host.SetHook(on(volumetest.OpWriteAt, "history", volumetest.Pause(gate)))
		want := []string{x.pair(1, "a")}
		time.Sleep(3 * time.Second)
		want = append(want, x.pair(3, "b"), x.pair(5, "c"))
		if r := x.p.Recent(); len(r.Ends) != 3 {
			t.Errorf("in memory: %+v", r.Ends)
		}
		gate.Resume()
		time.Sleep(3 * time.Second)
		wantChronicle(t, d, want...)
		x.end() //nolint:errcheck // it is stopped
	})
}

func TestHistoryRotatesAndIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		small := primary.HistoryOptions{FileBytes: 1000, TotalBytes: 5000, Age: time.Hour}
		id := cluster.RequestID(1)
		fill := func(x *term, n int) (last string) {
			for range n {
				last = x.pair(id, "l")
				id += 2
				time.Sleep(2 * time.Second)
			}
			return last
		}
		x := serve(t, d, 1, primary.Options{History: small})
		fill(x, 10)
		before := len(d.Files("history/"))
		x.end() //nolint:errcheck // it is stopped
		y := serve(t, d, 2, primary.Options{History: small})
		defer y.end() //nolint:errcheck // it is stopped
		last := fill(y, 60)
		files := d.Files("history/")
		total := 0
		for _, b := range files {
			total += len(b)
		}
		if before < 3 || len(files) < 4 || total > 7000 || total < 3000 {
			t.Errorf("%d files before, then %d with %d bytes", before, len(files), total)
		}
		if got := chronicle(t, d); got[len(got)-1] != last {
			t.Errorf("the last is %s, want %s", got[len(got)-1], last)
		}
		time.Sleep(2 * time.Hour)
		fill(y, 12)
		if got := chronicle(t, d); len(got) > 17 || len(got) < 12 {
			t.Errorf("two hours later: %q", got)
		}
	})
}

// A file that a crash left without its first line, or another volume's, does not keep those
// before it for ever.
func TestOldHistoryGoesBesideAFileThatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		options := primary.Options{History: primary.HistoryOptions{Age: time.Hour}}
		x := serve(t, d, 1, options)
		x.pair(1, "old")
		time.Sleep(3 * time.Second)
		x.end() //nolint:errcheck // it is stopped
		if err := d.Write("history/0000000001-000099.jsonl", 0, nil); err != nil {
			t.Fatal(err)
		}
		y := serve(t, d, 2, options)
		defer y.end() //nolint:errcheck // it is stopped
		last := y.pair(3, "new")
		time.Sleep(30 * time.Minute)
		if got := chronicle(t, d); len(got) != 2 {
			t.Errorf("half an hour later: %q", got)
		}
		time.Sleep(3 * time.Hour)
		wantChronicle(t, d, last)
	})
}

// What a primary that has just begun takes for old is not removed at once: its time of day
// may be wrong.
func TestHistoryIsRemovedOnlyByAClockThatIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		options := primary.Options{History: primary.HistoryOptions{Age: time.Hour}}
		x := serve(t, d, 1, options)
		old := x.pair(1, "old")
		time.Sleep(3 * time.Second)
		x.end() //nolint:errcheck // it is stopped
		time.Sleep(24 * time.Hour)
		y := serve(t, d, 2, options)
		last := y.pair(3, "new")
		time.Sleep(3 * time.Second)
		y.end() //nolint:errcheck // it is stopped
		time.Sleep(24 * time.Hour)
		z := serve(t, d, 3, options)
		defer z.end() //nolint:errcheck // it is stopped
		time.Sleep(59 * time.Minute)
		wantChronicle(t, d, old, last)
		time.Sleep(2 * time.Hour)
		if got := chronicle(t, d); len(got) > 1 {
			t.Errorf("and then: %q", got)
		}
	})
}

func TestADeposedPrimaryWritesNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		a := x.pair(1, "a")
		time.Sleep(3 * time.Second)
		x.pair(3, "b")
		x.p.End(errors.New("enough"))
		time.Sleep(3 * time.Second)
		wantChronicle(t, d, a)
		x.end() //nolint:errcheck // it is stopped
	})
}

// A power loss takes what was not synced; what the log still has is told again.
func TestHistoryAfterAPowerLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		x := serve(t, d, 1, primary.Options{})
		var want []string
		for i := range cluster.RequestID(10) {
			want = append(want, x.pair(2*i+1, "l"))
			time.Sleep(700 * time.Millisecond)
		}
		for i, left := range powerLosses(d, 20) {
			y := serve(t, left, 2, primary.Options{})
			time.Sleep(3 * time.Second)
			if r := y.p.Recent(); len(r.Ends) > 0 {
				t.Errorf("loss %d: not written: %+v", i, r)
			}
			y.end() //nolint:errcheck // it is stopped
			host := left.Host(3, volumetest.ProfileLocal())
			c, err := volume.ReadCluster(host)
			if err != nil {
				t.Fatal(err)
			}
			h, err := historydir.Dir{FS: host, Cluster: c.ID}.Search(t.Context(), history.Query{Lock: "l", Limit: 100}, history.Recent{From: y.p.LSN()}, y.p.LSN())
			if err != nil {
				t.Fatal(err)
			}
			if len(h.Ends) != len(want) || h.From != 0 {
				t.Errorf("loss %d: %d of %d are told, from %d, gaps %v", i, len(h.Ends), len(want), h.From, h.Gaps)
			}
		}
		x.end() //nolint:errcheck // it is stopped
	})
}

// Whoever was answered that a grant ended finds it in the history at once.
func TestWhatWasAnsweredIsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := serve(t, newDisk(t), 1, primary.Options{History: primary.HistoryOptions{Interval: time.Hour}})
		defer x.end() //nolint:errcheck // it is stopped
		token := x.ok(acquire("c1", 1, "l", 0)).Token
		told := make(chan int, 1)
		x.p.Submit([]*serving.AsyncRequest{{
			Request: *release("c1", 2, "l", token), Abandoned: new(atomic.Bool),
			To: ear(func(locktable.Outcome) { told <- len(x.p.Recent().Ends) }),
		}})
		if n := <-told; n != 1 {
			t.Errorf("%d ends are known when the release is answered", n)
		}
	})
}

// ear is told outcomes where they leave.
type ear func(locktable.Outcome)

func (f ear) Answer(_ *serving.AsyncRequest, out locktable.Outcome) { f(out) }
func (f ear) Flush()                                                {}

// A primary that is fenced removes no history: what its successor keeps is not its own.
func TestFencedPrimaryRemovesNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		few := primary.HistoryOptions{FileBytes: 1000, TotalBytes: 1 << 20}
		x := serve(t, d, 1, primary.Options{History: few})
		for i := range cluster.RequestID(10) {
			x.pair(1+2*i, "l")
			time.Sleep(2 * time.Second)
		}
		x.end() //nolint:errcheck // it is stopped
		gate := volumetest.NewGate()
		var most atomic.Int64
		most.Store(few.TotalBytes)
		few.Bounds = func() (int64, time.Duration) { return most.Load(), 24 * time.Hour }
		y := claim(t, d, 2, primary.Options{History: few})
		y.serving()
		synctest.Wait() // the beginning has been written: another file lists them once when it is begun, then whoever wants to remove some does
		most.Store(1000)
		y.host.SetHook(volumetest.AtOp(volumetest.OpReadDir, "history", 2, volumetest.Pause(gate)))
		for i := range cluster.RequestID(10) { // enough for another file
			y.pair(101+2*i, "m")
			time.Sleep(2 * time.Second)
		}
		<-gate.Arrived()
		before := d.Files("history/")
		v, r := primarytest.Claim(t, d.Host(3, volumetest.ProfileLocal()), volume.Options{Server: 3, FirstSegment: 32 << 10, Segment: 64 << 10})
		defer v.Close() //nolint:errcheck // it only claimed
		if _, err := r.FenceOlder(t.Context()); err != nil {
			t.Fatal(err)
		}
		gate.Resume()
		synctest.Wait()
		after := d.Files("history/")
		if len(before) < 3 {
			t.Errorf("there were only %d files of the history", len(before))
		}
		for f := range before {
			if _, ok := after[f]; !ok {
				t.Errorf("%s was removed", f)
			}
		}
		y.end() //nolint:errcheck // it is fenced
	})
}
