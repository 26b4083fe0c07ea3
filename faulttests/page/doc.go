// SPDX-License-Identifier: Apache-2.0

// Package page tests the web page of the servers in a real browser without a window, on real servers: Debian's chromium, or
// another Chromium that is installed. Where there is none, its tests skip and say so.
//
//	go test ./faulttests/page                     all tests
//	go test ./faulttests/page -page.shots DIR     and keep pictures of the views in DIR
package page
