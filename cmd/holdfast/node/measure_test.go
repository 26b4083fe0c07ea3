// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-lock/holdfast/election"
	"github.com/holdfast-lock/holdfast/primary"
	"github.com/holdfast-lock/holdfast/primary/meter"
	"github.com/holdfast-lock/holdfast/shared/volume"
)

func TestEndOf(t *testing.T) {
	for err, want := range map[error]meter.End{
		primary.ErrResigned:         meter.EndResigned,
		election.ErrYield:           meter.EndYielded,
		volume.ErrFenced:            meter.EndFenced,
		volume.ErrOvertaken:         meter.EndFenced,
		ErrNoQuorum:                 meter.EndNoQuorum,
		ErrStalled:                  meter.EndStalled,
		volume.ErrDamaged:           meter.EndRefused,
		primary.ErrVolumeRolledBack: meter.EndRefused,
		context.Canceled:            meter.EndStopped,
		errors.New("EIO"):           meter.EndFailed,
	} {
		if got := endOf(fmt.Errorf("epoch 3: %w: %w", volume.ErrDeposed, err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
