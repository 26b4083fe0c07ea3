// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"testing/synctest"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/volume"
	"github.com/holdfast-lock/holdfast/shared/volume/volumetest"
)

// asOlderRecovery rewrites a flag that a recovery has set as binaries before wrote it: in the name
// of the last epoch, with the nonce of the recovery, which is in no claim.json.
func asOlderRecovery(t *testing.T, d *volumetest.Disk, e, by cluster.Epoch) {
	t.Helper()
	name := fmt.Sprintf("epochs/%010d/fence", uint64(e))
	b := bytes.Clone(d.Files(name)[name][:512])
	if binary.LittleEndian.Uint64(b[8:]) != uint64(by) {
		t.Fatalf("%s was set by %d", name, binary.LittleEndian.Uint64(b[8:]))
	}
	copy(b[16:32], "an older nonce!!")
	binary.LittleEndian.PutUint32(b[508:], crc32.Checksum(b[:508], crc32.MakeTable(crc32.Castagnoli)))
	if err := d.Write(name, 0, b); err != nil {
		t.Fatal(err)
	}
}

// A recovery by an older binary, which was interrupted behind its first fences, stops nobody
// either: that binary's servers went on, and a repeated recovery lost nothing.
func TestAdvFencesOfAnInterruptedOlderRecoveryStopNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, end, _ := locksOnly(t)
		for range 2 {
			s := start(t, d, 1)
			s.claim()
			s.host.Kill()
		}
		opt := recovery()
		opt.Restored = true
		h := host(d, 9)
		h.SetHook(volumetest.AtOp(volumetest.OpMkdir, "servers/recover-", 1, volumetest.Crash()))
		if _, err := volume.Recover(t.Context(), h, opt); err == nil {
			t.Fatal("the recovery was not interrupted")
		}
		asOlderRecovery(t, d, 5, 6)
		asOlderRecovery(t, d, 4, 6)
		if plan, err := volume.PlanRecovery(t.Context(), host(d, 9), recovery()); err != nil || plan.Needed {
			t.Errorf("a recovery says: %v %q complete %t", err, plan.Reasons, plan.Complete)
		}
		s := start(t, d, 1)
		x, err := s.takeOver(s.claim(), nil)
		if err != nil || x.src.Epoch != 4 || x.table.LSN() != end {
			t.Errorf("take over: %v", err)
		}
	})
}
