// SPDX-License-Identifier: Apache-2.0

package cluster

import "syscall"

// processAttr makes a child die with the test process. The signal comes when
// the thread that forked it ends; Go ends no thread that no goroutine was locked to.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isolatedAttr gives a child namespaces of its own for its network and its mounts.
func isolatedAttr() *syscall.SysProcAttr {
	attr := processAttr()
	attr.Unshareflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS
	return attr
}
