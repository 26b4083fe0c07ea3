// SPDX-License-Identifier: Apache-2.0

package mutants

// nodeMutants break rules of who serves, the composition of a server and what peers tell.
var nodeMutants = []Mutant{}
