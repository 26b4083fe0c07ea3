// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/holdfast-lock/holdfast/shared/cluster"

// Decided says that an answer holds for every attempt of its request, also for one whose
// answer was lost or that is still under way: a receipt does, and so does a refusal for ever.
// Any other refusal tells of its own attempt only. Committed is the answer's; named says that
// the request has the token that it is about, which a break may lack.
func Decided(s cluster.Status, committed, named bool) bool {
	switch s {
	case cluster.StatusOK, cluster.StatusWaitTimeout, cluster.StatusCancelled, cluster.StatusLeaseExpired:
		return true
	case cluster.StatusInvalidToken:
		return named // a dead token stays dead
	default:
		return committed // it is in the log, whatever became of its file
	}
}
