// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"strings"
	"testing"
)

const trace = `SCHED 2001ms: gomaxprocs=2 idleprocs=2 threads=8 spinningthreads=0
  P0: status=0 schedtick=396 syscalltick=484 m=nil runqsize=0 gfreecnt=14 timerslen=9
  M8: p=nil curg=nil mallocing=0 throwing=0 preemptoff= locks=0
  G1: status=4(sync.WaitGroup.Wait) m=nil lockedm=nil
  G17: status=11() m=1 lockedm=1
  G18: status=6() m=nil lockedm=nil
  G20: status=4(select) m=nil lockedm=nil
`

func TestRuntimeLog(t *testing.T) {
	const collection = "gc 7 @5.178s 0%: 0.05+2.1+0.01 ms clock, 0.1+0.3/1.9/0+0.02 ms cpu, 40->41->12 MB, 64 MB goal, 3 MB stacks, 0 MB globals, 2 P\n"
	var log strings.Builder
	var l runtimeLog
	for _, step := range []struct {
		name, more string
		want       Runtime
	}{
		{"nothing yet", "", Runtime{}},
		{"a line of the server's own", `{"message":"gc 1, 1->2->3 MB"}` + "\n", Runtime{}},
		{"a collection", collection, Runtime{LiveBytes: 15 << 20}},
		{"a trace that may go on", trace, Runtime{LiveBytes: 15 << 20}},
		{"what follows it", `{"message":"checkpoint"}` + "\n", Runtime{LiveBytes: 15 << 20, Goroutines: 3}},
		{"half a line", "gc 8 @6s 0%: 1 ms cpu, 40->41->1", Runtime{LiveBytes: 15 << 20, Goroutines: 3}},
		{"the other half", "3 MB, 64 MB goal\n", Runtime{LiveBytes: 13 << 20, Goroutines: 3}},
		{"a broken one", "gc 9 @6s 0%: 1 ms cpu, 40->41->x MB\n", Runtime{LiveBytes: 13 << 20, Goroutines: 3}},
	} {
		log.WriteString(step.more)
		if err := l.read(strings.NewReader(log.String())); err != nil || l.told != step.want {
			t.Errorf("%s: %+v, %v", step.name, l.told, err)
		}
	}
}
