// SPDX-License-Identifier: Apache-2.0

package cluster

// Digest stands for a set of tokens: who has another set has, all but certainly, another
// digest. It goes over the wire, so how it is made is for ever: it is the sum, modulo
// 2^64, of the mixed tokens. The zero value is that of no token.
type Digest uint64

// With is the digest with one token more.
func (d Digest) With(t Token) Digest { return d + mixed(t) }

// Without is the digest with one token less.
func (d Digest) Without(t Token) Digest { return d - mixed(t) }

// mixed is the finalizer of SplitMix64.
func mixed(t Token) Digest {
	x := uint64(t) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return Digest(x ^ x>>31)
}
