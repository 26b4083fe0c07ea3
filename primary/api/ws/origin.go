// SPDX-License-Identifier: Apache-2.0

package ws

import (
	"fmt"
	"net/http"
	"path"
	"strings"
)

// CheckOrigin says what is wrong with a pattern of origins. It is a scheme and a host, with
// the port where it is not the scheme's, in which * stands for any text without a slash:
// https://app.example.com, https://*.example.com, http://localhost:3000.
func CheckOrigin(pattern string) error {
	scheme, host, ok := strings.Cut(pattern, "://")
	if _, err := path.Match(pattern, ""); err != nil || !ok || scheme == "" || host == "" || strings.Contains(host, "/") {
		return fmt.Errorf("%q is no origin: use SCHEME://HOST[:PORT], such as https://app.example.com or https://*.example.com", pattern)
	}
	return nil
}

// checkOrigin refuses what a page of another site has its browser do. A handshake is a GET
// that changes things, so it is held to what HTTP holds a POST to.
func (s *Server) checkOrigin(r *http.Request) error {
	post := *r
	post.Method = http.MethodPost
	err := s.guard.Check(&post)
	if err == nil {
		return nil
	}
	origin := strings.ToLower(r.Header.Get("Origin"))
	for _, pattern := range s.opt.Origins {
		if ok, _ := path.Match(strings.ToLower(pattern), origin); ok {
			return nil
		}
	}
	return fmt.Errorf("%w: pages of %q are let in with --ws-origin", err, origin)
}
