// SPDX-License-Identifier: Apache-2.0

package mutants

// judgeMutants break rules of the judge of the fault tests.
var judgeMutants = []Mutant{}
