// SPDX-License-Identifier: Apache-2.0

package fuse_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/faulttests/fuse"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// BenchmarkWrites compares a mount with the disk below it: the appends of a
// log, and the zeros that its segments are filled with.
func BenchmarkWrites(b *testing.B) {
	for _, kind := range []struct {
		name  string
		bytes int
	}{{"append 4 KiB", vfs.BlockSize}, {"fill 1 MiB", 1 << 20}} {
		b.Run(kind.name+", mount", func(b *testing.B) {
			benchWrites(b, newClientAt(b, mount(b, newShare(b), fuse.Strict()).Dir()), kind.bytes)
		})
		b.Run(kind.name+", disk", func(b *testing.B) { benchWrites(b, newClientAt(b, b.TempDir()), kind.bytes) })
	}
}

func benchWrites(b *testing.B, c *client, size int) {
	fd := c.open("a", unix.O_CREAT|unix.O_RDWR|unix.O_DIRECT|unix.O_DSYNC)
	b.SetBytes(int64(size))
	b.ResetTimer()
	c.ok(order{Call: "writes", FD: fd, Size: int64(b.N), Data: make([]byte, size)})
}
