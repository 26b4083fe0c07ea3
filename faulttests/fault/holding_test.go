// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/clientlib"
	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	hf "github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// holding is a held lock and the protected file that goes with it.
type holding struct {
	name string
	lock *clientlib.Lock
}

// longTTL is a lease that does not end in a test.
const longTTL = 10 * time.Minute

func hold(t *testing.T, client *clientlib.Client, name string) *holding {
	t.Helper()
	lock, err := client.Acquire(t.Context(), hf.LockName("hold/"+name), clientlib.AcquireOptions{TTL: longTTL, Wait: cluster.Patience})
	if err != nil {
		t.Fatalf("acquire %s: %v", name, err)
	}
	return &holding{name: name, lock: lock}
}

func (h *holding) file() string { return h.name + ".txt" }

func (h *holding) append(ctx context.Context, data string) (clientlib.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	return h.lock.Append(ctx, hf.FileName(h.file()), []byte(data))
}

func (h *holding) mustAppend(t *testing.T, data string) {
	t.Helper()
	if _, err := h.append(t.Context(), data); err != nil {
		t.Errorf("append to %s: %v", h.file(), err)
	}
}

func (h *holding) rotate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	_, err := h.lock.Rotate(ctx, hf.FileName(h.file()))
	return err
}

func isQuarantined(err error) bool { return errors.Is(err, wire.ErrFileQuarantined) }
