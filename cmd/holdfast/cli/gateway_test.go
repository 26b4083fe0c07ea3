// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"strings"
	"testing"
)

// What is wrong with a gateway's command line is said before it listens. A Unix socket of a server is no site: its user would speak for all
// clients.
func TestGatewayFlags(t *testing.T) {
	for _, x := range []struct {
		args []string
		want string
	}{
		{nil, "--site is needed"},
		{[]string{"--site", "unix:/run/holdfast/holdfast.sock"}, "--site: "},
		{[]string{"--site", "h1:7601,h2:0"}, "use HOST:PORT, with commas between"},
		{[]string{"--site", "/not/there"}, "no volume is there"},
		{[]string{"--site", "h1", "--listen", "7601"}, `--listen "7601": use HOST:PORT`},
		{[]string{"--site", "h1", "--config", "/not/there"}, "read the configuration"},
	} {
		r := run("", "", append([]string{"gateway"}, x.args...)...)
		if r.code == 0 || !strings.Contains(r.errs, x.want) {
			t.Errorf("%v: got %+v, want %q", x.args, r, x.want)
		}
	}
}
