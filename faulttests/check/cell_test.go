// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// ownOf is what a cell of a site of three says, where names below b/ and b/c/ are pinned.
func ownOf(t *testing.T, k cluster.CellID) *cluster.Own {
	t.Helper()
	d, err := cluster.Divide(3, []cluster.Pin{{Prefix: "b/", Cell: 1}, {Prefix: "b/c/", Cell: 2}})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster.Own{Site: cluster.ID{1}, Cell: k, Version: 1, Division: d}
}

// TestDivisionOfTheJudge: it was written anew, and gives each name to the same cell.
func TestDivisionOfTheJudge(t *testing.T) {
	for k := range cluster.CellID(3) {
		own := ownOf(t, k)
		var d division
		if err := json.Unmarshal([]byte(own.Text()), &d); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"%d", "b/%d", "b/c/%d", "x/{%d}/y", "{}%d", "{%d", "}{%d}{y}"} {
			for i := range 50 {
				if name := fmt.Sprintf(format, i); d.has(name) != own.Owns(name) {
					t.Errorf("%v has %q: %t", k, name, d.has(name))
				}
			}
		}
	}
}

// TestLogOfACell: a record with a name of another cell is found, and a cell that becomes one late, or twice.
func TestLogOfACell(t *testing.T) {
	own := locktable.Record{Kind: locktable.KindOwn, Own: ownOf(t, 1).Text()}
	grant := func(name cluster.LockName) locktable.Record {
		return locktable.Record{Kind: locktable.KindGrant, Lock: name, Client: "c", Request: 1, LowWater: 1}
	}
	for what, c := range map[string]struct {
		records []locktable.Record
		want    string
	}{
		"its own":         {[]locktable.Record{own, grant("b/1")}, "[]"},
		"another's":       {[]locktable.Record{own, grant("b/c/1")}, "[I2]"},
		"becomes it late": {[]locktable.Record{grant("b/1"), own}, "[I9]"},
		"said twice":      {[]locktable.Record{own, own}, "[I9]"},
		"no cell":         {[]locktable.Record{grant("b/c/1")}, "[]"},
	} {
		found := []Number{}
		x := newReference(func(i Number, format string, args ...any) { found = append(found, i) })
		for i, r := range c.records {
			r.LSN, r.Epoch, r.Token = cluster.LSN(i+1), 1, cluster.Token(i+1)
			x.see(&r)
		}
		if got := fmt.Sprint(found); got != c.want {
			t.Errorf("%s: found %s, want %s", what, got, c.want)
		}
	}
}
