// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// The version that the build gave wins over what Go knows of the module, and something is always said.
func TestVersion(t *testing.T) {
	built := func(main string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: main}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	where := " (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ", commit "
	for _, x := range []struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"", nil, "unknown" + where + "unknown)"},
		{"", built("(devel)"), "(devel)" + where + "unknown)"},
		{"", built("v0.1.0", "vcs.revision", "abc"), "v0.1.0" + where + "abc)"},
		{"v0.1.0-3-gabc", built("(devel)", "vcs.revision", "abc", "vcs.modified", "true"), "v0.1.0-3-gabc" + where + "abc, modified)"},
		{"v0.1.0", built("v0.0.9", "vcs.modified", "false"), "v0.1.0" + where + "unknown)"},
	} {
		if got := versionOf(x.linked, x.info).String(); got != "holdfast "+x.want {
			t.Errorf("got %s, want holdfast %s", got, x.want)
		}
	}
	for args, want := range map[string]string{"version": "holdfast v9 (", "--version": "holdfast v9 (", "version -o json": `{"version":"v9","commit":`} {
		var out strings.Builder
		code := Main(strings.Fields(args), Env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }, Linked: "v9"})
		if code != 0 || !strings.HasPrefix(out.String(), want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", args, code, &out)
		}
	}
}
