// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verifier verifies proofs as docs/security.md says that one has to, with PyJWT: its arguments are keys.json, the cluster's ID and a lock. A line of
// its input is a proof; for each it prints the claims, or the name of the error.
const verifier = `
import json, sys, jwt
keys = jwt.PyJWKSet.from_json(open(sys.argv[1]).read())
for proof in sys.stdin.read().split():
    try:
        header = jwt.get_unverified_header(proof)
        key = next((k for k in keys.keys if k.key_id == header.get("kid")), None)
        if key is None or header.get("typ") != "holdfast-proof":
            raise jwt.InvalidTokenError()
        claims = jwt.decode(proof, key.key, algorithms=["EdDSA"], issuer=sys.argv[2], options={"require": ["exp", "iat", "iss", "lock", "tok", "mode"]})
        if claims["lock"] != sys.argv[3] or claims["mode"] != "exclusive":
            raise jwt.InvalidTokenError()
        print(json.dumps(claims))
    except jwt.InvalidTokenError as e:
        print(type(e).__name__)
`

// python returns a Python that has PyJWT with Ed25519, or skips the test.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} { // Debian's packages are of the latter
		if exec.Command(name, "-c", "import jwt, cryptography").Run() == nil {
			return name
		}
	}
	t.Skip("there is no Python with PyJWT and cryptography (python3-jwt, python3-cryptography)")
	return ""
}

// Another implementation of JSON Web Tokens than ours takes a proof of real servers by their published keys, and none that is forged in any way.
func TestPyJWTVerifiesProofs(t *testing.T) {
	py := python(t)
	w := startDev(t)
	w.primary(0)
	token := strings.Fields(w.do("", "acquire", "config/web"))[0]
	proof := strings.TrimSpace(w.do("", "proof", "config/web", "--token", token))
	other := strings.TrimSpace(w.do("", "proof", "config/db", "--token", strings.Fields(w.do("", "acquire", "config/db"))[0]))
	parts := strings.Split(proof, ".")
	if len(parts) != 3 {
		t.Fatalf("the proof is %q", proof)
	}
	part := func(i int) []byte {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var said struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(part(1), &said); err != nil {
		t.Fatal(err)
	}
	encoded := base64.RawURLEncoding.EncodeToString
	higher := encoded(bytes.Replace(part(1), []byte(`"tok":"`), []byte(`"tok":"9`), 1))
	if higher == parts[1] {
		t.Fatalf("the claims are %s", part(1))
	}
	signature := part(2)
	signature[5] ^= 1
	forged := []string{
		other,
		parts[0] + "." + higher + "." + parts[2],
		parts[0] + "." + parts[1] + "." + encoded(signature),
		encoded([]byte(`{"alg":"none","typ":"holdfast-proof"}`)) + "." + higher + ".",
		encoded(bytes.Replace(part(0), []byte("EdDSA"), []byte("HS256"), 1)) + "." + higher + "." + parts[2],
	}
	cmd := exec.Command(py, "-c", verifier, filepath.Join(w.dir, "keys.json"), said.Issuer, "config/web")
	cmd.Stdin = strings.NewReader(proof + "\n" + strings.Join(forged, "\n"))
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 1+len(forged) {
		t.Fatalf("%v: %s", err, out)
	}
	var claims struct {
		Lock  string `json:"lock"`
		Token string `json:"tok"`
	}
	if err := json.Unmarshal([]byte(lines[0]), &claims); err != nil || claims.Lock != "config/web" || claims.Token != token {
		t.Errorf("the proof: %s, want token %s", lines[0], token)
	}
	for i, line := range lines[1:] {
		if strings.HasPrefix(line, "{") {
			t.Errorf("%s is taken: %s", forged[i], line)
		}
	}
}
