// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with addresses for clients is said before anything is done, and that a flag is out of use.
func TestListenFlags(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.json")
	for _, x := range []struct {
		config string
		args   []string
		code   int
		want   string
	}{
		{`{}`, []string{"--ws-listen", "nowhere"}, 2, "--ws-listen"},
		{`{"ws_listen":"7901"}`, nil, 2, `config.json:1:2: ws-listen "7901": use HOST:PORT`},
		{`{}`, []string{"--text-listen", "8001"}, 2, "--text-listen"},
		{`{"text-listen":":8001","ws_listen":"x"}`, nil, 2, `config.json:1:24: ws-listen "x": use HOST:PORT`},
		{`{"text_listen":"127.0.0.1:0"}`, nil, 5, "mounted"},
		{`{}`, []string{"--listen", "7601"}, 2, "--listen"},
		{`{"listen":"7601"}`, nil, 2, `config.json:1:2: listen "7601": use HOST:PORT`},
		{`{"listen":":7601"}`, nil, 5, "mounted"},
		{`{}`, []string{"--text-listen", "127.0.0.1:0"}, 5, "--text-listen is deprecated"},
		{`{"ws_listen":"127.0.0.1:0"}`, nil, 5, "--ws-listen is deprecated"},
		{`{}`, []string{"--ws-origin", "*"}, 2, `"*" is no origin`},
		{`{"ws_origin":["https://a.example","b.example"]}`, nil, 2, `"b.example" is no origin`},
		{`{"ws_origin":"c.example"}`, nil, 2, `"c.example" is no origin`},
		{`{"ws_origin":["c.example"]}`, []string{"--ws-origin", "https://a.example"}, 5, "mounted"}, // flags win
		{`{"max_connections_per_address":0}`, nil, 2, "config.json:1:2: max-connections-per-address 0: use 1 or more"},
		{`{}`, []string{"--max-connections-per-address", "-1"}, 2, "use 1 or more"},
		{`{}`, []string{"--max-connections-per-address", "9000"}, 5, "mounted"},
		{`{"ws_listen":"127.0.0.1:0","ws_origin":["https://a.example"]}`, nil, 5, "mounted"},
	} {
		if err := os.WriteFile(config, []byte(x.config), 0o600); err != nil {
			t.Fatal(err)
		}
		r := run("", "", append([]string{"server", "--id", "1", "--volume", "/not/there", "--config", config}, x.args...)...)
		if r.code != x.code || !strings.Contains(r.errs, x.want) {
			t.Errorf("%s %v: got %+v, want code %d and %q", x.config, x.args, r, x.code, x.want)
		}
	}
}
