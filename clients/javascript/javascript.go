// SPDX-License-Identifier: Apache-2.0

// Package javascript has the module for pages and other programs in JavaScript, and a page that shows what it does, as each server serves
// them to browsers. There is nothing to build: holdfast.js is the module.
package javascript

import "embed"

// Files returns holdfast.js, example.js and example.html.
func Files() embed.FS { return files }

//go:embed holdfast.js example.js example.html
var files embed.FS
