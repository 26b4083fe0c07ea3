// SPDX-License-Identifier: Apache-2.0

// Package page serves the web page of a server: its markup, styles and scripts, as they were when the binary was built.
//
// The page holds no data, so everybody gets it, also without a credential. What it shows it reads through the API for
// everybody (docs/http.md), under the credential that its visitor gives it. It is plain HTML, CSS and JavaScript modules, with
// nothing to build and nothing from elsewhere, and what it may do is bounded by the policy that it is sent with: scripts and
// styles of this server only, and none that come as text.
//
// Beside it are the module for other pages and its example, see package javascript: a page on the same server may import
// /page/holdfast.js, and others copy it.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/holdfast-lock/holdfast/clients/javascript"
)

//go:embed files
var files embed.FS

// Policy is the Content-Security-Policy of the page. Beyond its origins, a script cannot turn text into markup or code.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Page is the page. It is safe for use by several goroutines.
type Page struct {
	tag   string // of all files together: they fit each other
	files map[string][]byte
}

// New returns the page that was built into this binary.
func New() *Page {
	p := &Page{files: map[string][]byte{}}
	sum := sha256.New()
	for _, all := range []embed.FS{files, javascript.Files()} {
		err := fs.WalkDir(all, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := all.ReadFile(name)
			fmt.Fprintf(sum, "%s %d\n%s", name, len(b), b)
			p.files["/page/"+path.Base(name)] = b
			return err
		})
		if err != nil { // what was built in can be read
			panic(fmt.Sprintf("read the page: %v", err))
		}
	}
	p.files["/"] = p.files["/page/index.html"]
	delete(p.files, "/page/index.html")
	p.tag = `"` + hex.EncodeToString(sum.Sum(nil)[:16]) + `"`
	return p
}

// Has reports whether a path is one of the page.
func (p *Page) Has(path string) bool { return p.files[path] != nil }

// ServeHTTP answers a GET or HEAD of a path that the page has. A browser may keep the answer, and has to ask each time whether it is still the
// server's: after an upgrade it shows no page of before.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := w.Header()
	x.Set("Content-Type", contentType(r.URL.Path))
	x.Set("Content-Security-Policy", Policy)
	x.Set("X-Content-Type-Options", "nosniff")
	x.Set("Referrer-Policy", "no-referrer")
	x.Set("X-Frame-Options", "DENY")
	x.Set("Cross-Origin-Opener-Policy", "same-origin")
	x.Set("Cross-Origin-Resource-Policy", "same-origin")
	x.Set("Cache-Control", "no-cache")
	x.Set("Etag", p.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.files[r.URL.Path]))
}

// contentType returns the type of a file. It does not ask package mime, which goes by the tables of the machine.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return "text/html; charset=utf-8"
	}
}
