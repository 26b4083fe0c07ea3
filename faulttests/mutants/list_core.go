// SPDX-License-Identifier: Apache-2.0

package mutants

// coreMutants break rules of the core loop, the commit path, the push and the views.
var coreMutants = []Mutant{}
