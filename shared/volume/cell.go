// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"hash/crc32"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// A volume may be a cell of a site. CLUSTER says which, from the rename on that makes the volume; the log decides. Every term logs it
// before everything else if the log that it adopted does not have it. So before the first request is decided the table knows what it
// owns, whichever terms began, and raced, and ended, before that: one that answered a request had logged it before.

// bear sets what the volume is made to own.
func (c *Cluster) bear(own *cluster.Own) {
	if own != nil {
		c.Cell, c.CellSum = own, cellSum(own)
	}
}

func cellSum(own *cluster.Own) string {
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(own.Text()), crc32.MakeTable(crc32.Castagnoli)))
}

// checkCell returns an error if what CLUSTER says of a cell cannot be what it was made with.
func (c *Cluster) checkCell() error {
	switch {
	case c.Cell == nil && c.CellSum == "":
		return nil
	case c.Cell == nil:
		return fmt.Errorf("a checksum of what the cell owns, and no cell")
	case c.CellSum != cellSum(c.Cell):
		return fmt.Errorf("what the cell owns has another checksum than %s", c.CellSum)
	case c.FeatureLevel < locktable.CellsLevel:
		return fmt.Errorf("a cell needs feature level %d, and this volume begins with %d", locktable.CellsLevel, c.FeatureLevel)
	}
	return c.Cell.Validate()
}

// cellName returns which cell the volume is, for people.
func (c *Cluster) cellName() string {
	if c.Cell == nil {
		return "a volume that is no cell"
	}
	return fmt.Sprintf("%v of site %s", c.Cell.Cell, c.Cell.Site)
}

// FitsCell returns an error that wraps ErrDamaged if a log that made table t cannot be that of the cell which CLUSTER names. A volume whose
// CLUSTER names none may have the log of a cell: it was recovered from elsewhere.
func (c *Cluster) FitsCell(t *locktable.Table) error {
	own := t.Own()
	switch {
	case c.Cell == nil:
		return nil
	case own == nil && t.HasNames():
		return fmt.Errorf("%w: CLUSTER says that this is %s, the log is that of a volume which is no cell: these are files of two volumes", ErrDamaged, c.cellName())
	case own != nil && (own.Site != c.Cell.Site || own.Cell != c.Cell.Cell || own.Version == c.Cell.Version && own.Text() != c.Cell.Text()):
		return fmt.Errorf("%w: CLUSTER says that this is %s, the log that it is %v of site %s, or with other names: these are files of two volumes", ErrDamaged, c.cellName(), own.Cell, own.Site)
	}
	return nil
}

// Born returns what the volume was made to own as a cell of a site, nil if it is not one.
func (r *Term) Born() *cluster.Own { return r.v.cluster.Cell }

// FitsCell is Cluster.FitsCell for the volume of this term.
func (r *Term) FitsCell(t *locktable.Table) error { return r.v.cluster.FitsCell(t) }
