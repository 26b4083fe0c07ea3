// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/holdfast-lock/holdfast/shared/cluster"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// TestReference compares docs/http.md with what the front end accepts: paths, fields,
// parameters and statuses.
func TestReference(t *testing.T) {
	b, err := os.ReadFile("../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z_/0-9]+)` \\|([^|]*)\\|")
	word := regexp.MustCompile("`([^`]+)`")
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		rows[m[1]] = m[2]
	}
	h := New(service.New(bare{}, service.Options{}), Options{Log: zerolog.Nop()})
	for path := range h.routes() {
		name := strings.TrimPrefix(strings.Replace(path, "{name...}", "NAME", 1), "POST /v1/")
		name = strings.TrimPrefix(name, "GET ")
		var told []string
		for _, m := range word.FindAllStringSubmatch(rows[name], -1) {
			told = append(told, m[1])
		}
		if _, ok := rows[name]; !ok {
			t.Errorf("docs/http.md has no row of %s", name)
		} else if want := accepts(t, h, path); !slices.Equal(slices.Sorted(slices.Values(told)), want) {
			t.Errorf("%s: docs/http.md tells %q, accepted are %q", name, told, want)
		}
		delete(rows, name)
	}
	for s := cluster.StatusOK; s <= cluster.StatusFileSealed; s++ {
		if got, want := strings.TrimSpace(rows[s.String()]), fmt.Sprint(wire.HTTPCode(s)); got != want {
			t.Errorf("%v: docs/http.md says code %q, not %s", s, got, want)
		}
		delete(rows, s.String())
	}
	for name := range rows {
		t.Errorf("docs/http.md tells of %s, which nobody knows", name)
	}
}

// bare is a server without a table.
type bare struct{ serving.Backend }

func (bare) Status() serving.ClusterStatus { return serving.ClusterStatus{Server: 2} }

func (bare) Timing() cluster.Timing { return cluster.DefaultTiming() }

// accepts lists the fields or parameters of a path, sorted, as it lists them itself where it
// is given one that it does not know.
func accepts(t *testing.T, h http.Handler, path string) []string {
	method, path, _ := strings.Cut(strings.Replace(path, "{name...}", "x", 1), " ")
	body := `{"?":1}`
	if method == "GET" || strings.HasSuffix(path, "/append") {
		path, body = path+"?%3F=1", ""
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	_, list, _ := strings.Cut(w.Body.String(), "allowed are ")
	list, _, _ = strings.Cut(list, `"`)
	return slices.Sorted(slices.Values(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })))
}
