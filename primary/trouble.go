// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/shared/cluster"
)

// Full says that the log cannot grow: the next segment cannot be made for want of space.
func (p *Primary) Full() bool { return p.noSpace.Load() }

// maxTrouble bounds how many files FileTrouble names.
const maxTrouble = 3

// FileTrouble says which protected files cannot be written, and why. It is asked often, so
// it looks at the files only if one has failed in this reign.
func (p *Primary) FileTrouble() (all []string) {
	if !p.filesFailed.Load() {
		return nil
	}
	var names []cluster.FileName
	why := map[cluster.FileName]string{}
	p.files.Lock()
	for name, w := range p.files.writers {
		if f := w.failing.Load(); f != nil {
			names, why[name] = append(names, name), f.text
		}
	}
	p.files.Unlock()
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxTrouble)] {
		all = append(all, "appends wait: "+why[name])
	}
	if more := len(names) - maxTrouble; more > 0 {
		all = append(all, fmt.Sprintf("appends to %d more files wait", more))
	}
	return all
}
