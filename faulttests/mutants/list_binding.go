// SPDX-License-Identifier: Apache-2.0

package mutants

// bindingMutants break rules of protected files, their bindings and what requests about them left behind.
var bindingMutants = []Mutant{}
