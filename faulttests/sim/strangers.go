// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/locktable"
)

// strangers tries what other identities can send after a request of the client was executed: under
// its ID, with low-water marks and request IDs that it comes to next, and with its token under an ID
// of their own. Nothing of it may be executed, and the client's own requests go on as without it.
func (w *worker) strangers(ctx context.Context, p backend, done *locktable.Request, token cluster.Token) {
	next := w.next + 1
	for _, identity := range []string{"user:mallory", "", "user:" + string(w.id) + "x"} {
		all := []locktable.Request{
			{Op: locktable.OpCancel, Client: w.id, Target: next, LowWater: next},
			{Op: locktable.OpAcquire, Client: w.id, ID: next, LowWater: next, Lock: "elsewhere", TTL: ttl},
			*done, // and its answer
			{Op: locktable.OpForget, Client: w.id},
		}
		if done.Op != locktable.OpRelease {
			own := cluster.ClientID("mallory")
			data := fmt.Appendf(nil, "of %q after %s/%d\n", identity, w.id, w.next)
			w.scenario.Ledger.refuse(data)
			all = append(all,
				locktable.Request{
					Op: locktable.OpAppend, Client: own, ID: next, Lock: w.lock, Token: token, File: w.file,
					Data: data, CRC: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)),
				},
				locktable.Request{Op: locktable.OpDowngrade, Client: own, ID: next + 1, Lock: w.lock, Token: token},
				locktable.Request{Op: locktable.OpRelease, Client: own, ID: next + 2, Lock: w.lock, Token: token},
			)
		}
		for _, q := range all {
			q.Identity = identity
			out, err := ask(ctx, p, q)
			if err != nil {
				continue
			}
			switch out.Status {
			case cluster.StatusPermissionDenied:
				w.scenario.denied.Add(1)
			case cluster.StatusUnknown, cluster.StatusServerFencing, cluster.StatusSecondaryMode,
				cluster.StatusNoQuorum, cluster.StatusStorageUnavailable:
			default:
				w.scenario.Ledger.violation("%v by %q, of what belongs to the identity of %s: %v %s", q.Op, identity, w.id, out.Status, out.Message)
			}
		}
	}
}
