// SPDX-License-Identifier: Apache-2.0

package volume

import "github.com/holdfast-lock/holdfast/shared/volume/internal/layout"

// Where a volume takes logins by its filesystem, it has LoginDir, of mode 1733: a user proves who he is by a directory that
// he makes in it. Its owner is that of SecretsDir. Nothing in it is kept.
const (
	LoginDir   = layout.LoginDir
	SecretsDir = layout.SecretsDir
)
