// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/access"
)

func TestKeyText(t *testing.T) {
	text := access.KeyText([32]byte{1, 2, 3})
	if !strings.HasPrefix(text, "hfk_") || len(text) != 4+56 || text == access.KeyText([32]byte{1, 2, 4}) {
		t.Errorf("the text is %s", text)
	}
	if sum, err := access.KeySum(text); err != nil || sum != sha256.Sum256([]byte(text)) {
		t.Error(err)
	}
	bad := []string{"", "hfk_", text[4:], text + "a", text[:len(text)-1], "hfk_" + strings.ToUpper(text[4:]), text + "\n", strings.Replace(text, "hfk_", "hfk_\n", 1)}
	for i := 4; i < len(text); i++ {
		other := "a"
		if text[i] == 'a' {
			other = "b"
		}
		bad = append(bad, text[:i]+other+text[i+1:])
	}
	for _, s := range bad {
		if _, err := access.KeySum(s); err == nil {
			t.Errorf("%q is a key", s)
		}
	}
}
