// SPDX-License-Identifier: Apache-2.0

package access

import "strings"

// maxDiff bounds how many pairs of lines Diff compares.
const maxDiff = 4 << 20

// Diff returns the lines that only a has, with "-" before them, and those that only b has, with "+", in order. Where
// large texts differ much it does not look for what they share.
func Diff(a, b []byte) []string {
	x, y := strings.Split(strings.TrimSuffix(string(a), "\n"), "\n"), strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	share := func(i, j int) int { return 0 } // how many lines the texts share from there on
	if (len(x)+1)*(len(y)+1) <= maxDiff {
		width := len(y) + 1
		shared := make([]int, (len(x)+1)*width)
		for i := len(x) - 1; i >= 0; i-- {
			for j := len(y) - 1; j >= 0; j-- {
				if n := max(shared[(i+1)*width+j], shared[i*width+j+1]); x[i] != y[j] {
					shared[i*width+j] = n
				} else {
					shared[i*width+j] = shared[(i+1)*width+j+1] + 1
				}
			}
		}
		share = func(i, j int) int { return shared[i*width+j] }
	}
	all := []string{}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && share(i+1, j) >= share(i, j+1):
			all = append(all, "-"+x[i])
			i++
		default:
			all = append(all, "+"+y[j])
			j++
		}
	}
	return all
}
