// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cluster

import "syscall"

func processAttr() *syscall.SysProcAttr { return nil }

func isolatedAttr() *syscall.SysProcAttr { return nil }
