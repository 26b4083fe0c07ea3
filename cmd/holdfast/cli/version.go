// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version says which binary this is.
type version struct {
	// Version is what the build gave, such as v0.1.0-3-g91290f6, else what Go knows of the module.
	Version string `json:"version"`
	// Commit is that of the source; Modified reports whether the source differed from it.
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns all of it on one line.
func (v version) String() string {
	modified := ""
	if v.Modified {
		modified = ", modified"
	}
	return fmt.Sprintf("holdfast %s (%s, %s, commit %s%s)", v.Version, v.Go, v.Platform, v.Commit, modified)
}

// versionOf returns the version of a binary that was linked with a version, or "", and has this information.
func versionOf(linked string, info *debug.BuildInfo) version {
	v := version{Version: linked, Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		v.Version = cmp.Or(v.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	v.Version = cmp.Or(v.Version, "unknown")
	return v
}

func (a *app) version() version {
	info, _ := debug.ReadBuildInfo()
	return versionOf(a.Linked, info)
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := a.version()
			return a.print(v, func(w io.Writer) { fmt.Fprintln(w, v) })
		},
	}
}
