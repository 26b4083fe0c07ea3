// SPDX-License-Identifier: Apache-2.0

package check

import "testing"

func TestLockSet(t *testing.T) {
	// b was frozen: its write lost c, and its append was refused; e had no answer.
	right := func() LockSet {
		return LockSet{
			Added: []string{"a", "c", "b", "d", "e"}, Accepted: []string{"a", "c", "d"}, Refused: []string{"b"},
			Set: []string{"a", "b", "d", "e"}, File: []string{"a", "c", "d", "e"},
		}
	}
	for name, c := range map[string]struct {
		damage func(*LockSet)
		want   []Number
	}{
		"right":                       {func(*LockSet) {}, nil},
		"the set lost nothing":        {func(s *LockSet) { s.Set = append(s.Set, "c") }, []Number{Run}},
		"an accepted one is missing":  {func(s *LockSet) { s.File = []string{"a", "d", "e"} }, []Number{I5}},
		"one is there twice":          {func(s *LockSet) { s.File = append(s.File, "a") }, []Number{I5}},
		"a refused one is there":      {func(s *LockSet) { s.File = append(s.File, "b") }, []Number{I1}},
		"nobody's is there":           {func(s *LockSet) { s.File = append(s.File, "x") }, []Number{I5}},
		"the unanswered one is not":   {func(s *LockSet) { s.File = []string{"a", "c", "d"} }, nil},
		"the unanswered one is twice": {func(s *LockSet) { s.File = append(s.File, "e") }, []Number{I5}},
	} {
		s, r := right(), &Report{}
		c.damage(&s)
		s.Check(r)
		wants(t, name, r, c.want...)
	}
}
