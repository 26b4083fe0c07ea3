// SPDX-License-Identifier: Apache-2.0

// Package traffic is what clients do in fault tests: lockers make histories for
// porcupine out of every operation on locks.
package traffic
