// SPDX-License-Identifier: Apache-2.0

package frontend_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/primary/primarytest"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// TestStatusTellsTheCell, and everything that names a lock or a file of another one is refused, with the cell that has it.
func TestStatusTellsTheCell(t *testing.T) {
	h := serveHTTP(t, startPrimaryOf(t, primarytest.InitCell, nil))
	var status wire.StatusBody
	if code, _ := h.call("GET", "/v1/status", "", &status); code != 200 || status.Cell == nil {
		t.Fatalf("status: %d %+v", code, status)
	}
	if c := status.Cell; c.Cell != 0 || c.Version != 1 || !strings.HasPrefix(c.SiteID, "0700") || len(c.Ranges) != 1 || c.Ranges[0] != (wire.RangeBody{From: "0000000000000000"}) ||
		len(c.Pins) != 1 || c.Pins[0] != (wire.PinBody{Prefix: "p/", Cell: 1}) {
		t.Errorf("the cell is told as %+v", c)
	}
	token := h.ok("/v1/acquire", `{"lock":"l","ttl":"30s"}`).Token
	for path, data := range map[string]string{
		"/v1/acquire": `{"lock":"p/l","ttl":"30s"}`, "/v1/release": `{"lock":"p/l","token":1}`, "/v1/renew": `{"lock":"p/l","token":1}`, "/v1/verify": `{"lock":"p/l","token":1}`,
		fmt.Sprintf("/v1/append?lock=l&token=%d&file=p/f", token): "abc",
	} {
		if code, b := h.post(path, data); code != 421 || b.Status != "WRONG_CELL" || b.Cell == nil || *b.Cell != 1 || !strings.Contains(b.Message, "belongs to cell 1 of this site") {
			t.Errorf("%s: %d %+v", path, code, b)
		}
	}
	if code, b := h.post("/v1/acquire", `{"lock":"l","ttl":"30s"}`); code != 423 || b.Cell != nil {
		t.Errorf("another refusal: %d %+v", code, b)
	}
	var lock wire.LockBody
	if code, _ := h.call("GET", "/v1/locks/p/l", "", &lock); code != 421 || lock.Status != "WRONG_CELL" {
		t.Errorf("/v1/locks/p/l: %d %+v", code, lock)
	}
	var file wire.Body
	if code, _ := h.call("GET", "/v1/files/p/f", "", &file); code != 421 || file.Status != "WRONG_CELL" {
		t.Errorf("/v1/files/p/f: %d %+v", code, file)
	}
	plain := serveHTTP(t, startPrimary(t))
	status = wire.StatusBody{}
	if code, _ := plain.call("GET", "/v1/status", "", &status); code != 200 || status.Cell != nil {
		t.Errorf("a volume of no site: %d %+v", code, status.Cell)
	}
}
