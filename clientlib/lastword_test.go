// SPDX-License-Identifier: Apache-2.0

package clientlib

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

func TestTimeOutTellsWhatAServerSaidLast(t *testing.T) {
	var said lastWord
	if err := said.beside(context.DeadlineExceeded); err != context.DeadlineExceeded {
		t.Errorf("nobody said anything: %v", err)
	}
	said.note(&wire.Error{Status: cluster.StatusStorageUnavailable, Message: "the volume is full"})
	said.note(errors.New("connection refused"))
	err := said.beside(context.DeadlineExceeded)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the volume is full") {
		t.Errorf("got %v", err)
	}
	if errors.Is(err, wire.ErrStorageUnavailable) {
		t.Error("a time-out passes for a refusal, though a later attempt may have been executed")
	}
}
