// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// rotatedBetween is a service whose file is rotated behind its first piece.
type rotatedBetween struct{ fake }

func (rotatedBetween) ReadFile(_ context.Context, q *pb.ReadFileRequest) (*pb.ReadFileResponse, error) {
	r := &pb.ReadFileResponse{Status: pb.Status_STATUS_OK, Offset: q.GetOffset(), End: 8, Generation: 1, Data: []byte("one\n")}
	if q.GetOffset() > 0 {
		if r.Generation, r.Data = 2, []byte("new\n"); q.GetGeneration() == 1 {
			return &pb.ReadFileResponse{Status: pb.Status_STATUS_INVALID_ARGUMENT, Message: "it is at generation 2"}, nil
		}
	}
	return r, nil
}

func TestCatOfOneGeneration(t *testing.T) {
	if r := run("", startService(t, rotatedBetween{}), "cat", "log"); r.code == 0 {
		t.Errorf("pieces of two generations: %q", r.out)
	}
}
