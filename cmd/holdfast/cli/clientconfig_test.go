// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Flags win over the environment, and that over files, for what clients use.
func TestClientConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "client.toml")
	key := filepath.Join(dir, "key")
	bad := filepath.Join(dir, "bad.toml")
	for name, text := range map[string]string{file: "endpoints = \"127.0.0.1:1\"\nkey-file = \"/k\"\noutput = \"json\"\nca = \"/not/there\"\n", bad: "endpoint = \"a\"\n", key: "hfk_x"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name string
		args string
		vars map[string]string
		code int
		want []string
	}{
		{"nothing", "config show --client", map[string]string{"HOME": dir}, 0, []string{"endpoints  " + defaultEndpoints + "  default", "key-file   -"}},
		{"the environment", "config show --client -o text", map[string]string{"HOLDFAST_ENDPOINTS": "e:1", "HOLDFAST_KEY": "hfk_secret"}, 0, []string{"e:1", "HOLDFAST_ENDPOINTS", "output     text", "--output"}},
		{"the environment over the file", "config show --client", map[string]string{"HOLDFAST_ENDPOINTS": "e:1"}, 0,
			[]string{`{"name":"endpoints","value":"e:1","origin":"HOLDFAST_ENDPOINTS"}`, `{"name":"key-file","value":"/k","origin":"` + file + `"}`, `{"name":"output","value":"json","origin":"` + file, `{"name":"ca","value":"","origin":"none`}},
		{"a flag", "config show --client --endpoints f:1", map[string]string{"HOLDFAST_ENDPOINTS": "e:1", "CREDENTIALS_DIRECTORY": "/c"}, 0,
			[]string{`"f:1","origin":"--endpoints"`, `"/c/holdfast.key"`}},
		{"the authority of the file", "config show --client", nil, 2, []string{"/not/there"}},
		{"its endpoints", "status --timeout 100ms", nil, 2, []string{"/not/there"}},
		{"a variable over its endpoints", "status --timeout 100ms -o text", map[string]string{"HOLDFAST_ENDPOINTS": "127.0.0.1:2", "HOLDFAST_KEY_FILE": key}, 2, []string{"no server answers: 127.0.0.1:2"}},
		{"a mistake", "status", map[string]string{"HOLDFAST_CLIENT_CONFIG": bad}, 2, []string{bad + `:1:1: unknown key "endpoint": did you mean endpoints?`}},
		{"a mistake, shown", "config show --client", map[string]string{"HOLDFAST_CLIENT_CONFIG": bad}, 2, []string{"did you mean endpoints?"}},
		{"a certificate", "config show --client --cert /c.crt", map[string]string{"HOLDFAST_ENDPOINTS": "e:1", "HOLDFAST_CERT": "/d", "HOLDFAST_CERT_KEY": "/c.key"}, 0,
			[]string{`"cert","value":"/c.crt","origin":"--cert"`, `"cert-key","value":"/c.key","origin":"HOLDFAST_CERT_KEY"`}},
		{"a certificate without its key", "status --cert /c.crt -o text", map[string]string{"HOLDFAST_ENDPOINTS": "e:1"}, 2, []string{"HOLDFAST_CERT, or cert, is set, and HOLDFAST_CERT_KEY, or cert-key, is not: name both"}},
		{"a key without its certificate", "status -o text", map[string]string{"HOLDFAST_ENDPOINTS": "e:1", "HOLDFAST_CERT_KEY": "/c.key"}, 2, []string{"HOLDFAST_CERT_KEY, or cert-key, is set, and HOLDFAST_CERT, or cert, is not: name both"}},
		{"a certificate that is not there", "status -o text", map[string]string{"HOLDFAST_ENDPOINTS": "e:1", "HOLDFAST_CERT": "/not/there.crt", "HOLDFAST_CERT_KEY": "/c.key"}, 2, []string{"the client's certificate: open /not/there.crt: no such file"}},
		{"a certificate that is none", "status -o text", map[string]string{"HOLDFAST_ENDPOINTS": "e:1", "HOLDFAST_CERT": key, "HOLDFAST_CERT_KEY": key}, 2, []string{"the client's certificate " + key + " with the key " + key + ": tls: failed to find any PEM data"}},
		{"a certificate that does not concern", "version", map[string]string{"HOLDFAST_CERT": "/not/there"}, 0, []string{"version"}},
		{"an authority that does not concern", "version", map[string]string{"HOLDFAST_CA": "/not/there"}, 0, []string{"version"}},
		{"a mistake that does not concern", "version", map[string]string{"HOLDFAST_CLIENT_CONFIG": bad}, 0, []string{"holdfast "}},
	} {
		vars := map[string]string{"HOLDFAST_CLIENT_CONFIG": file}
		for k, v := range x.vars {
			vars[k] = v
		}
		if x.vars["HOME"] != "" || x.vars["HOLDFAST_KEY"] != "" {
			delete(vars, "HOLDFAST_CLIENT_CONFIG")
		}
		var out strings.Builder
		code := Main(strings.Fields(x.args), Env{Stdout: &out, Stderr: &out, Getenv: func(name string) string { return vars[name] }})
		if code != x.code || strings.Contains(out.String(), "secret") {
			t.Errorf("%s: exit code %d\n%s", x.name, code, &out)
		}
		for _, w := range x.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", x.name, w, &out)
			}
		}
	}
}
