// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clientlib

func systemClock() Clock { return newMonotonicClock() }
