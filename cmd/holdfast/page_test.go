// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Dev tells where its page is, also where clients need a credential: the page is there for them to give it.
func TestDevTellsOfItsPage(t *testing.T) {
	for _, flags := range [][]string{nil, {"--secure"}} {
		w := startDev(t, flags...)
		await(t, "a page", func() bool {
			resp, err := http.Get(w.page)
			if err != nil {
				return false
			}
			defer resp.Body.Close() //nolint:errcheck // it was only read
			b, err := io.ReadAll(resp.Body)
			return err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(b), "<title>Holdfast</title>")
		})
	}
}
