// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// An error that stays is told once, and again when it comes back.
func TestRepeatTellsAnErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second+time.Second/2)
		defer cancel()
		hangs, gone := errors.New("hangs"), errors.New("gone")
		results, told := []error{hangs, hangs, gone, nil, gone, gone}, ""
		repeat(ctx, time.Second, func() error {
			err := results[0]
			results = results[1:]
			return err
		}, func(err error) { told += fmt.Sprint(err, " ") })
		if want := "hangs gone gone "; told != want || len(results) != 0 {
			t.Errorf("told %q with %d left, want %q", told, len(results), want)
		}
	})
}
