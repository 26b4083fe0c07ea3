// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/serving"
)

// TestHiddenNamesCostFewReads: a page of one, where what one may read comes last.
func TestHiddenNamesCostFewReads(t *testing.T) {
	const names = 100_000
	calls := 0
	page := func(_, after string, size int) (all []string, _ serving.Reading, _ error) {
		calls++
		from := 0
		if after != "" {
			n, err := strconv.Atoi(after)
			if err != nil {
				t.Fatal(err)
			}
			from = n + 1
		}
		for i := from; i < min(from+size+1, names); i++ {
			all = append(all, fmt.Sprintf("%06d", i))
		}
		if len(all) > maxPage+1 {
			t.Fatalf("a page of %d names", len(all))
		}
		return all, serving.Reading{Status: cluster.StatusOK}, nil
	}
	last := fmt.Sprintf("%06d", names-1)
	all, _, err := readable(1, []string{""}, "", page, func(s *string) string { return *s }, func(s string) bool { return s == last })
	if err != nil || len(all) != 1 || all[0] != last {
		t.Errorf("%q, %v", all, err)
	}
	if calls > 2*names/maxPage {
		t.Errorf("%d reads of the table for one answer", calls)
	}
}
