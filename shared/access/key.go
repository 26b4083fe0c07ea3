// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
)

// The text of a key is hfk_, 256 random bits and the first three bytes of their SHA-256, in base 32 with small letters. So
// a search finds keys that stand where they should not, and a mistyped one is told from one that was revoked.

const (
	// KeyPrefix and TicketPrefix begin the texts of all keys and tickets.
	KeyPrefix    = "hfk_"
	TicketPrefix = "hft_"
	// MaxCredential bounds the text of a credential, in bytes.
	MaxCredential = 8 << 10
)

const (
	keyBits = 32 // bytes
	keySum  = 3
)

// KeyText returns the text of the key that is made of these random bytes.
func KeyText(random [keyBits]byte) string {
	sum := sha256.Sum256(random[:])
	return KeyPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(append(random[:], sum[:keySum]...)))
}

// KeySum returns the SHA-256 of the text of a key, by which Rules know it. It returns an error if the text is none.
func KeySum(text string) (sum [sha256.Size]byte, err error) {
	letters, ok := strings.CutPrefix(text, KeyPrefix)
	if !ok {
		return sum, errors.New("this is no key: keys begin with " + KeyPrefix)
	}
	b, err := base32.StdEncoding.DecodeString(strings.ToUpper(letters))
	if err != nil || len(b) != keyBits+keySum || letters != strings.ToLower(letters) || strings.ContainsAny(letters, "\r\n") { // which the decoder skips
		return sum, errors.New("this is no key: letters of it are missing or wrong")
	}
	if check := sha256.Sum256(b[:keyBits]); !bytes.Equal(check[:keySum], b[keyBits:]) {
		return sum, errors.New("this is no key: a letter of it is wrong")
	}
	return sha256.Sum256([]byte(text)), nil
}
