// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestModelNoticesWrongHistories is the model's own negative control.
func TestModelNoticesWrongHistories(t *testing.T) {
	op := func(client int, in any, call, back int64, out Reply) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: back}
	}
	a := AcquireCall{Lock: "a"}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"one after the other": {[]porcupine.Operation{
			op(0, a, 0, 1, Reply{Token: 5}), op(0, ReleaseCall{"a", 5}, 2, 3, Reply{}), op(1, a, 4, 5, Reply{Token: 7}),
		}, true},
		"two holders":      {[]porcupine.Operation{op(0, a, 0, 1, Reply{Token: 5}), op(1, a, 2, 3, Reply{Token: 7})}, false},
		"one token twice":  {[]porcupine.Operation{op(0, a, 0, 1, Reply{Token: 5}), op(0, ReleaseCall{"a", 5}, 2, 3, Reply{}), op(1, a, 4, 5, Reply{Token: 5})}, false},
		"a token falls":    {[]porcupine.Operation{op(0, a, 0, 1, Reply{Token: 5}), op(0, ReleaseCall{"a", 5}, 2, 3, Reply{}), op(1, a, 4, 5, Reply{Token: 4})}, false},
		"held by nobody":   {[]porcupine.Operation{op(0, a, 0, 1, Reply{Held: true})}, false},
		"held by somebody": {[]porcupine.Operation{op(0, a, 0, 1, Reply{Token: 5}), op(1, a, 2, 3, Reply{Held: true})}, true},
		"released by another token": {[]porcupine.Operation{
			op(0, a, 0, 1, Reply{Token: 5}), op(0, ReleaseCall{"a", 4}, 2, 3, Reply{}),
		}, false},
		"a lost answer explains held": {[]porcupine.Operation{
			op(0, a, 0, math64, Reply{Unknown: true}), op(1, a, 2, 3, Reply{Held: true}),
		}, true},
	} {
		if got := porcupine.CheckOperations(LockModel(), c.history); got != c.want {
			t.Errorf("%s: linearizable %v, want %v", name, got, c.want)
		}
	}
}

const math64 = int64(^uint64(0) >> 1)
