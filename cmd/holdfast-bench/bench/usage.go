// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Descriptors is how many files and connections a process has open.
func Descriptors(pid int) (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(all), err
}

// DirUsage is how many files there are below a directory and how many bytes they
// take on the disk, each counted once however many names it has. Entries of dir itself
// may be left out by name. What disappears meanwhile was not there.
func DirUsage(dir string, without ...string) (files int, bytes int64, err error) {
	seen := map[uint64]bool{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && filepath.Dir(path) == filepath.Clean(dir) && slices.Contains(without, d.Name()):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[s.Ino] {
			return nil
		}
		seen[s.Ino] = true
		files++
		bytes += s.Blocks * 512
		return nil
	})
	return files, bytes, err
}
