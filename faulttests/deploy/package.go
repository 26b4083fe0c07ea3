// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Recipe returns the configuration of nfpm for the packages of a configuration of goreleaser, which runs nfpm with the same keys and a
// few of its own. The packages have this binary, and the manual pages and completions of this directory.
func Recipe(goreleaser, version, arch, binary, manual string) (string, error) {
	const built = "bin/manual/" // where goreleaser has them made
	if !strings.Contains(goreleaser, built) {
		return "", errors.New("the packages have nothing of " + built)
	}
	var config struct {
		NFPMs []map[string]any `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(goreleaser, built, manual+"/")), &config); err != nil {
		return "", err
	}
	if len(config.NFPMs) != 1 {
		return "", errors.New("the configuration is not of one kind of packages")
	}
	r := config.NFPMs[0]
	name, _ := r["package_name"].(string)
	bin, _ := r["bindir"].(string)
	contents, _ := r["contents"].([]any)
	r["name"], r["version"], r["arch"], r["platform"] = name, version, arch, "linux"
	r["contents"] = append(contents, map[string]any{"src": binary, "dst": path.Join(bin, name), "file_info": map[string]any{"mode": 0o755}})
	for _, own := range []string{"id", "ids", "formats", "package_name", "bindir", "mtime"} {
		delete(r, own)
	}
	b, err := yaml.Marshal(r)
	return string(b), err
}
