// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shape is how many clients the workers of a load share; a positive number is that many.
type Shape int

const (
	// Each is a client with a connection of its own for each worker.
	Each Shape = 0
	// One is one client for all workers.
	One Shape = 1
)

// maxClients bounds a Shape: more clients have no file descriptors on any machine.
const maxClients = 1_000_000

// Clients returns how many clients this number of workers uses.
func (s Shape) Clients(workers int) int {
	if s == Each {
		return workers
	}
	return int(s)
}

// String returns the word for which ParseShape returns s.
func (s Shape) String() string {
	switch s {
	case Each:
		return "each"
	case One:
		return "one"
	}
	return strconv.Itoa(int(s))
}

// ParseShape returns the Shape for "one", "each" or a number of clients.
func ParseShape(word string) (Shape, error) {
	switch word {
	case "each":
		return Each, nil
	case "one":
		return One, nil
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 || n > maxClients {
		return 0, fmt.Errorf("%q: use one, each, or a number of clients from 1 to %d", word, maxClients)
	}
	return Shape(n), nil
}

// Shapes are the values of a flag, with commas between. It implements pflag.Value.
type Shapes []Shape

// Set replaces the shapes. It returns an error for a word that is none, and for an empty list.
func (all *Shapes) Set(list string) error {
	var parsed Shapes
	for word := range strings.SplitSeq(list, ",") {
		s, err := ParseShape(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		parsed = append(parsed, s)
	}
	*all = parsed
	return nil
}

// String returns the list that Set takes; "" if it is empty.
func (all *Shapes) String() string {
	var words []string
	for _, s := range *all {
		words = append(words, s.String())
	}
	return strings.Join(words, ",")
}

// Type names the values in the help of a command.
func (*Shapes) Type() string { return "one|each|number" }

// Numbers returns how many clients the shapes mean for this number of workers, each number once:
// with one worker, one client is the same as a client for each.
func (all Shapes) Numbers(workers int) (n []int) {
	for _, s := range all {
		if c := s.Clients(workers); !slices.Contains(n, c) {
			n = append(n, c)
		}
	}
	return n
}
