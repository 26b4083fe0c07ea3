// SPDX-License-Identifier: Apache-2.0

package check

// AddResults takes over results that were kept from another run.
func (r *Report) AddResults(all []Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range all {
		c := &r.mu.results[x.Invariant.Number]
		c.checked += x.Checked
		c.violations += x.Violations
		c.findings = append(c.findings, x.Findings[:min(len(x.Findings), findingLimit-len(c.findings))]...)
		if c.why == "" {
			c.why = x.Why
		}
	}
}
