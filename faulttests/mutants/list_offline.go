// SPDX-License-Identifier: Apache-2.0

package mutants

// offlineMutants break rules of zeroed and missing parts of a volume, fsck and recover.
var offlineMutants = []Mutant{}
