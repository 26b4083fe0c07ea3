// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clientlib

import "syscall"

// noticeBreaks does nothing: a break is noticed by the time that a call may take.
func noticeBreaks(string, string, syscall.RawConn) error { return nil }
