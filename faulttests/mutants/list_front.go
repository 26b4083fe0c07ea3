// SPDX-License-Identifier: Apache-2.0

package mutants

// frontMutants break rules of front ends and the command line.
var frontMutants = []Mutant{}
