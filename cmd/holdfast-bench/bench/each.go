// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Each does something n times, several at a time, until the first error.
func Each(n, parallel int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Bool
	errs := make([]error, min(parallel, n))
	var working sync.WaitGroup
	for w := range errs {
		working.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[w] = do(i); errs[w] != nil {
					failed.Store(true)
				}
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}
