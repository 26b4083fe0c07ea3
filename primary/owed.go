// SPDX-License-Identifier: Apache-2.0

package primary

// owes says that grants of a phase are due which were too many for one decision.
func (c *core) owes() bool { return !c.resigning && c.table.Owes() }

// grantOwed goes on with them, before anything else is decided.
func (c *core) grantOwed() bool {
	for c.owes() && !c.full() {
		if !c.applyAll(c.table.DecideOwed(c.p.Epoch(), c.recs[:0]), nil) {
			return false
		}
	}
	return true
}
