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
	"github.com/holdfast-lock/holdfast/shared/frontend/ops"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/serving"
	"github.com/holdfast-lock/holdfast/shared/wire"
)

// TestReference compares docs/http.md with the table of operations, and with what the front end
// accepts: paths, fields, parameters and statuses.
func TestReference(t *testing.T) {
	b, err := os.ReadFile("../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z_/0-9 ]+)` \\|(.*)\\|$")
	word := regexp.MustCompile("`([^`]+)`")
	rows := map[string][]string{} // cells by the first one
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		for cell := range strings.SplitSeq(m[2], "|") {
			rows[m[1]] = append(rows[m[1]], strings.TrimSpace(cell))
		}
	}
	h := New(service.New(bare{}, service.Options{}), Options{Log: zerolog.Nop()})
	for _, o := range ops.All() {
		if o.Route == "" {
			continue
		}
		name, want := rowOf(o), []string{string(o.Server), string(o.Repeat)}
		if strings.HasPrefix(o.Route, http.MethodGet) {
			want = want[:1] // to read again is harmless
		}
		cells := rows[name]
		if len(cells) != 2+len(want) || !slices.Equal(cells[2:], want) {
			t.Errorf("%s: docs/http.md has the cells %q, which end with %q", name, cells, want)
			continue
		}
		var told []string
		for _, m := range word.FindAllStringSubmatch(cells[0], -1) {
			told = append(told, m[1])
		}
		if want := accepts(t, h, o.Route); !slices.Equal(slices.Sorted(slices.Values(told)), want) {
			t.Errorf("%s: docs/http.md tells %q, accepted are %q", name, told, want)
		}
		delete(rows, name)
	}
	for _, s := range cluster.Statuses() {
		if got, want := rows[s.String()], fmt.Sprint(wire.HTTPCode(s)); len(got) == 0 || got[0] != want {
			t.Errorf("%v: docs/http.md says %q, not code %s", s, got, want)
		}
		delete(rows, s.String())
	}
	for name := range rows {
		t.Errorf("docs/http.md tells of %s, which nobody knows", name)
	}
}

// rowOf returns the first cell of an operation's row in docs/http.md.
func rowOf(o *ops.Operation) string {
	path := strings.Replace(o.Path(), "{name...}", "NAME", 1)
	method, _, _ := strings.Cut(o.Route, " ")
	switch {
	case o.Posted():
		return o.Name
	case method == http.MethodGet:
		return path
	}
	return method + " " + path
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
	if method == "GET" || strings.HasSuffix(path, "/append") || strings.HasSuffix(path, "/x") {
		path, body = path+"?%3F=1", ""
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	_, list, _ := strings.Cut(w.Body.String(), "allowed are ")
	list, _, _ = strings.Cut(list, `"`)
	return slices.Sorted(slices.Values(strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })))
}
