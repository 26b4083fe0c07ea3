// SPDX-License-Identifier: Apache-2.0

// Package spelling guesses what a misspelt name was meant to be, for messages.
package spelling

// Meant returns ": did you mean X?" for a misspelt one of the known names, "" if none is near.
func Meant(name string, known []string) string {
	best, least := "", min(4, 2+len(name)/4)
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// distance returns how many bytes have to be added, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
