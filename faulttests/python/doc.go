// SPDX-License-Identifier: Apache-2.0

// Package python runs the tests of clients/python with the Python of this machine and real servers, and breaks one rule of the
// Python at a time, which its tests have to notice. Without a Python from 3.9 on it skips and says so.
//
//	go test ./faulttests/python               the tests with a server in their own process, and some with real servers
//	go test ./faulttests/python -faults -v    all of them, over kills, pauses and broken connections; then the mutants
package python
