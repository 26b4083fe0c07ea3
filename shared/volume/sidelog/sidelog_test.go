// SPDX-License-Identifier: Apache-2.0

package sidelog_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/shared/volume/sidelog"
)

func TestNames(t *testing.T) {
	d := sidelog.Dir{Path: "history", Suffix: ".jsonl"}
	n := sidelog.Name{Epoch: 7, N: 12}
	if d.File(n) != "history/0000000007-000012.jsonl" {
		t.Errorf("path %s", d.File(n))
	}
	large := sidelog.Name{Epoch: 1 << 33, N: 1}
	for _, n := range []sidelog.Name{n, large} {
		name := d.File(n)[len("history/"):]
		if got, ok := d.Parse(name); !ok || got != n {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "x", "0000000007-12.jsonl", "7-000012.jsonl", "0000000007-000012.json", "0000000007-000012", "0000000007.jsonl", ".nfs0001", "0000000007-000012.jsonl.tmp"} {
		if _, ok := d.Parse(name); ok {
			t.Errorf("%q passes for a file", name)
		}
	}
	if n.Compare(large) >= 0 || large.Compare(n) <= 0 || n.Compare(n) != 0 || n.Compare(sidelog.Name{Epoch: 7, N: 13}) >= 0 {
		t.Error("files are out of order")
	}
}
