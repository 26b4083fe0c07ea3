// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"testing"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// Whatever a holder has in its metadata, a candidate reads that another one leads.
func FuzzRecordOf(f *testing.F) {
	f.Add("", "me")
	f.Add("null", "me")
	f.Add(`{"holderIdentity":"me","acquireTime":"x"}`, "me")
	f.Add(`{"holderIdentity":"me","leaseDurationSeconds":1,"renewTime":"2026-01-02T03:04:05Z"}`, "me")
	f.Add(longest("you").text(), "you")
	f.Fuzz(func(t *testing.T, metadata, identity string) {
		info := clientlib.LockInfo{Metadata: metadata, Holder: &clientlib.HolderInfo{Token: 7}}
		if r := recordOf(&info, identity, false); r.HolderIdentity == "" || r.HolderIdentity == identity && identity != "unknown (token 7)" {
			t.Errorf("%q, read by %q: the holder is %q", metadata, identity, r.HolderIdentity)
		}
		if identity != "" {
			info.Metadata = record{HolderIdentity: identity}.text()
			if r := recordOf(&info, identity, true); len(r.HolderIdentity) == 0 {
				t.Errorf("%q: the own record has no holder", identity)
			}
		}
	})
}
