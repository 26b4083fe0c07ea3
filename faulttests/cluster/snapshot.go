// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshot is the content of every file of a volume, by slash-separated path
// inside it.
type Snapshot map[string]FileSum

// FileSum has the checksums by which one file is compared.
type FileSum struct {
	Size int64
	Sum  [sha256.Size]byte
	// Flag is the sum of the first block: in a file named fence, the fence flag.
	Flag [sha256.Size]byte
	// Rest is the sum of all but the first block.
	Rest [sha256.Size]byte
}

// flagBytes is at least the fence flag's block and less than what lies before START.
const flagBytes = 4096

// TakeSnapshot reads the whole volume. Files that vanish meanwhile are left out.
func (c *Cluster) TakeSnapshot() (Snapshot, error) {
	all := Snapshot{}
	err := filepath.WalkDir(c.dir, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(c.dir, name)
		if err != nil {
			return err
		}
		sum, err := sumFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all[filepath.ToSlash(rel)] = sum
		return err
	})
	return all, err
}

func sumFile(name string) (s FileSum, err error) {
	f, err := os.Open(name)
	if err != nil {
		return s, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	whole, flag, rest := sha256.New(), sha256.New(), sha256.New()
	first, err := io.CopyN(io.MultiWriter(whole, flag), f, flagBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	n, err := io.Copy(io.MultiWriter(whole, rest), f)
	s.Size = first + n
	whole.Sum(s.Sum[:0])
	flag.Sum(s.Flag[:0])
	rest.Sum(s.Rest[:0])
	return s, err
}

// Changes lists the files that differ in after, one line each, in order. It leaves out files
// for which allowed returns true.
func (before Snapshot) Changes(after Snapshot, allowed func(path string) bool) (changes []string) {
	for name, old := range before {
		if allowed(name) {
			continue
		}
		now, there := after[name]
		switch {
		case !there:
			changes = append(changes, name+": is gone")
		case now.Sum != old.Sum && strings.HasSuffix(name, "/fence") && now.Rest == old.Rest:
			changes = append(changes, name+": its flag was set")
		case now.Sum != old.Sum:
			changes = append(changes, fmt.Sprintf("%s: changed, %d bytes before, %d now", name, old.Size, now.Size))
		}
	}
	for name := range after {
		if _, there := before[name]; !there && !allowed(name) {
			changes = append(changes, name+": is new")
		}
	}
	slices.Sort(changes)
	return changes
}
