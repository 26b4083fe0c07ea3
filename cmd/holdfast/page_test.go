// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Dev tells where its page is, also where clients need a credential: the page is there for them to give it.
func TestDevTellsOfItsPage(t *testing.T) {
	for _, flags := range [][]string{nil, {"--secure"}} {
		w := startDev(t, flags...)
		var last string // what came instead of the page
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s %v: %s", w.page, flags, last)
			}
		})
		await(t, "a page", func() bool {
			resp, err := http.Get(w.page)
			if err != nil {
				last = err.Error()
				return false
			}
			defer resp.Body.Close() //nolint:errcheck // it was only read
			b, err := io.ReadAll(resp.Body)
			last = fmt.Sprintf("%s: %v\n%s", resp.Status, err, b)
			return err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(b), "<title>Holdfast</title>")
		})
	}
}
