// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// booked is a service that notes who asks and who is forgotten.
type booked struct {
	fake
	asked, forgotten *[]string
}

func (b booked) Acquire(ctx context.Context, q *pb.AcquireRequest) (*pb.Answer, error) {
	*b.asked = append(*b.asked, q.GetClientId())
	return b.fake.Acquire(ctx, q)
}

func (b booked) Release(ctx context.Context, q *pb.ReleaseRequest) (*pb.Answer, error) {
	*b.asked = append(*b.asked, q.GetClientId())
	return b.fake.Release(ctx, q)
}

func (b booked) FileAppend(ctx context.Context, q *pb.FileAppendRequest) (*pb.Answer, error) {
	*b.asked = append(*b.asked, q.GetClientId())
	return b.fake.FileAppend(ctx, q)
}

func (b booked) ForgetClient(_ context.Context, q *pb.ForgetClientRequest) (*pb.Answer, error) {
	*b.forgotten = append(*b.forgotten, q.GetClientId())
	return ok("", 0), nil
}

// Whom a command made up for its request is forgotten with its answer, and nobody else. What
// gets a lock is remembered for as long as it holds it, without being told to be forgotten.
func TestOneShotsAreForgotten(t *testing.T) {
	var b booked
	b.asked, b.forgotten = new([]string), new([]string)
	addr := startService(t, b)
	for line, want := range map[string]string{
		"release a --token 17":    "cli- forgotten",
		"append a log --token 17": "cli- forgotten",
		"append a log":            "~, cli- forgotten, ~",
		"acquire a":               "~",
		"release a --token 17 --client-id me --request-id 1": "me",
		"acquire a --client-id me --request-id 1":            "me",
		"release a --token 16":                               "cli-", // refused: nothing is remembered of it
	} {
		*b.asked, *b.forgotten = nil, nil
		run("data\n", addr, words(line)...)
		var got []string
		for _, client := range *b.asked {
			short := client
			for _, begin := range []string{"cli-", "~"} {
				if strings.HasPrefix(client, begin) && len(client) > 20 {
					short = begin
				}
			}
			if slices.Contains(*b.forgotten, client) {
				short += " forgotten"
			}
			got = append(got, short)
		}
		if strings.Join(got, ", ") != want || len(*b.forgotten) > 1 {
			t.Errorf("holdfast %s: asked %q, forgotten %q, want %s", line, *b.asked, *b.forgotten, want)
		}
	}
}
