// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// TestPermitsThatAreWrong: a log in which permits of a lock are given otherwise than in the order of the queue, or beyond the limit, is wrong.
func TestPermitsThatAreWrong(t *testing.T) {
	takes := func(kind locktable.Kind, client cluster.ClientID, weight, limit uint32) locktable.Record {
		r := locktable.Record{
			Kind: kind, Epoch: 1, Client: client, Request: 1, Lock: "l", TTL: time.Second, Mode: locktable.ModeShared,
			Permit: locktable.Permit{Limit: limit, Weight: weight},
		}
		if kind == locktable.KindEnqueue {
			r.Wait = locktable.WaitForever
		}
		return r
	}
	grant := func(client cluster.ClientID, weight, limit uint32) locktable.Record {
		return takes(locktable.KindGrant, client, weight, limit)
	}
	ends := locktable.Record{Kind: locktable.KindExpire, Epoch: 1, Lock: "l", Token: 1}
	plain := grant("x", 0, 0)
	plain.Mode = locktable.ModeExclusive
	// Two of three permits are taken by a, and b waits for two, c for one.
	begin := []locktable.Record{grant("a", 2, 3), takes(locktable.KindEnqueue, "b", 2, 3), takes(locktable.KindEnqueue, "c", 1, 3)}
	for why, x := range map[string]struct {
		then []locktable.Record
		want string // in the violation; "" = there is none
	}{
		"in their order":          {[]locktable.Record{ends, grant("b", 2, 3), grant("c", 1, 3)}, ""},
		"more than is free":       {[]locktable.Record{grant("b", 2, 3)}, "2 more of the 3 permits"},
		"the light one first":     {[]locktable.Record{grant("c", 1, 3)}, "it is the turn of number -1"},
		"the second first":        {[]locktable.Record{ends, grant("c", 1, 3)}, "it is the turn of number 0"},
		"one who did not wait":    {[]locktable.Record{ends, grant("x", 1, 3)}, "who did not wait"},
		"another weight":          {[]locktable.Record{ends, grant("b", 1, 3)}, "in another mode"},
		"another limit":           {[]locktable.Record{takes(locktable.KindEnqueue, "x", 1, 4)}, "another limit than 4"},
		"without a limit":         {[]locktable.Record{plain}, "another limit than 0"},
		"nothing of a limit":      {[]locktable.Record{takes(locktable.KindEnqueue, "x", 0, 3)}, "it takes 0 of 3"},
		"a downgrade of a permit": {[]locktable.Record{{Kind: locktable.KindDowngrade, Epoch: 1, Client: "a", Request: 9, Lock: "l", Token: 1}}, "is shared already"},
	} {
		var found []string
		ref := newReference(func(_ Number, format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		for i, r := range append(append([]locktable.Record{}, begin...), x.then...) {
			r.LSN = cluster.LSN(i + 1)
			ref.see(&r)
		}
		if all := strings.Join(found, "; "); (x.want == "") != (all == "") || !strings.Contains(all, x.want) {
			t.Errorf("%s: found %q, want %q", why, all, x.want)
		}
	}
	var found []string
	ref := newReference(func(_ Number, format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
	place := takes(locktable.KindEnqueue, "x", 1, 3)
	place.LSN = 1
	if ref.see(&place); len(found) != 1 || !strings.Contains(found[0], "which is free") {
		t.Errorf("a wait for what is free: found %q", found)
	}
}
