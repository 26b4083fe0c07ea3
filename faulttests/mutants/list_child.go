// SPDX-License-Identifier: Apache-2.0

package mutants

// childMutants break rules of holdfast run and its guard.
var childMutants = []Mutant{}
