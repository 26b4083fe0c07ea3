// SPDX-License-Identifier: Apache-2.0

package mutants

import "slices"

// List is every mutant, in the order of the protocol.
func List() []Mutant {
	return slices.Concat(
		takeoverMutants, adoptMutants, warmMutants, commitMutants, orderMutants, logMutants, fileMutants, contentMutants,
		tableMutants, leaseMutants, askMutants, sharedMutants, sessionMutants, frameMutants, historyMutants, electionMutants,
		watchMutants, wayMutants, textMutants, clientMutants, bindingMutants, offlineMutants, childMutants, nodeMutants,
		coreMutants, frontMutants, judgeMutants, leftoverMutants, harnessMutants, strangerMutants, glusterMutants,
		sweepVolumeMutants, sweepPrimaryMutants, sweepElectionMutants, sweepFrontMutants, toldMutants, sweepRestMutants, delegationMutants,
		madeMutants, smallMutants,
	)
}
