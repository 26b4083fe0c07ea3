// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"reflect"
	"testing"
)

// Each field goes into the hash, and no push-ack is the same as none.
func TestTimingHash(t *testing.T) {
	is := DefaultTiming()
	was := is.Hash()
	if was == 0 || was != DefaultTiming().Hash() {
		t.Errorf("the hash is %d, and then %d", was, DefaultTiming().Hash())
	}
	is.PushAck = ""
	if is.Hash() != was {
		t.Error("no push-ack is not none")
	}
	for i := range reflect.TypeFor[Timing]().NumField() {
		other := DefaultTiming()
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("other")
		default:
			f.SetInt(f.Int() + 1)
		}
		if other.Hash() == was {
			t.Errorf("%s is not in the hash", reflect.TypeFor[Timing]().Field(i).Name)
		}
	}
}
