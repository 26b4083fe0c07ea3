// SPDX-License-Identifier: Apache-2.0

package volume

import "unsafe"

// BlockSize is the unit of direct I/O: offsets, lengths and buffer addresses
// are multiples of it. 4096 satisfies every filesystem that DESIGN names.
const BlockSize = 4096

// AlignedBuffer returns a zeroed buffer of n bytes whose address is a multiple of BlockSize.
func AlignedBuffer(n int) []byte {
	raw := make([]byte, n+BlockSize)
	skip := 0
	if rest := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % BlockSize); rest != 0 {
		skip = BlockSize - rest
	}
	return raw[skip : skip+n : skip+n]
}
