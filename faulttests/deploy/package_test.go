// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
	"github.com/holdfast-lock/holdfast/faulttests/deploy"
)

const (
	root       = "../.."
	goreleaser = root + "/.goreleaser.yaml"
	samples    = root + "/docs/deploy/package"
)

// nfpm is the tool that goreleaser has inside.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// packages makes the package of a format, and returns its name and that of the binary in it.
func packages(t *testing.T, format string) (name, binary string) {
	t.Helper()
	if testing.Short() {
		t.Skip("nfpm is compiled, and what it needs may be downloaded")
	}
	if out, err := exec.CommandContext(t.Context(), "go", "run", nfpm, "--version").CombinedOutput(); err != nil {
		t.Skipf("nfpm cannot be had: %v\n%s", err, out)
	}
	dir := t.TempDir()
	binary, err := cluster.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := deploy.Recipe(read(t, goreleaser), "0.1.0", "amd64", binary, writeManual(t))
	if err != nil {
		t.Fatal(err)
	}
	recipe := filepath.Join(dir, "nfpm.yaml")
	if err := os.WriteFile(recipe, []byte(r), 0o600); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(dir, "holdfast."+format)
	pack := exec.CommandContext(t.Context(), "go", "run", nfpm, "package", "-f", recipe, "-p", format, "-t", name)
	pack.Dir = root
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("nfpm: %v\n%s\n%s", err, out, r)
	}
	return name, binary
}

// told runs a command that is here, and returns what it writes.
func told(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not here", name)
	}
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}

// listed are the lines of the lists of dpkg-deb and rpm that a package has to have: mode, owner, name.
func listed(t *testing.T, format string) (all []string) {
	t.Helper()
	const file, program, dir = "-rw-r--r-- root/root ", "-rwxr-xr-x root/root ", "drwxr-xr-x root/root "
	zsh, license := "site-functions", "licenses/holdfast/LICENSE"
	if format == "deb" {
		zsh, license = "vendor-completions", "doc/holdfast/copyright"
	}
	for _, page := range []string{"holdfast", "holdfast-run", "holdfast-server", "holdfast-access-edit"} {
		all = append(all, file+"/usr/share/man/man1/"+page+".1")
	}
	for _, doc := range []string{"configuration.md", "operate.md", "security.md", "examples/server.toml", "examples/client.toml", "examples/prometheus/holdfast.rules.yml"} {
		all = append(all, file+"/usr/share/doc/holdfast/"+doc)
	}
	return append(all, program+"/usr/bin/holdfast", dir+"/etc/holdfast", file+"/usr/share/"+license,
		file+"/usr/lib/systemd/system/holdfast@.service", file+"/usr/lib/systemd/system/holdfast-gateway.service", file+"/usr/lib/sysusers.d/holdfast.conf", file+"/usr/lib/tmpfiles.d/holdfast.conf",
		file+"/usr/share/bash-completion/completions/holdfast", file+"/usr/share/zsh/"+zsh+"/_holdfast", file+"/usr/share/fish/vendor_completions.d/holdfast.fish")
}

// TestPackages wants in each package what it has to have, and nothing below /etc but an empty directory: what is configured there
// is the operator's.
func TestPackages(t *testing.T) {
	lists := map[string]func(name string) string{
		"deb": func(name string) string { return told(t, "dpkg-deb", "--contents", name) },
		"rpm": func(name string) string {
			return told(t, "rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]", name)
		},
	}
	line := regexp.MustCompile(`^(\S{10}) (\w+/\w+) .*?\.?(/\S*[^/\s])/?$`)
	for format, list := range lists {
		t.Run(format, func(t *testing.T) {
			name, _ := packages(t, format)
			var has []string
			for l := range strings.Lines(list(name)) {
				x := line.FindStringSubmatch(strings.Replace(strings.TrimSpace(l), "root /", "root  /", 1))
				if x == nil {
					t.Fatalf("this is no line of a list: %q", l)
				}
				has = append(has, x[1]+" "+x[2]+" "+x[3])
				if strings.HasPrefix(x[3], "/etc/") && x[3] != "/etc/holdfast" {
					t.Errorf("the package has %s", x[3])
				}
			}
			for _, want := range listed(t, format) {
				if !slices.Contains(has, want) {
					t.Errorf("the package lacks %s", want)
				}
			}
		})
	}
}

// TestPackagesInstall installs each package, upgrades to it and removes it, in a copy of this machine's files. A server is neither
// started nor stopped but by the removal, and who owns a volume's files stays.
func TestPackagesInstall(t *testing.T) {
	for format, commands := range map[string][]string{
		"deb": {"dpkg --no-triggers -i /package", "dpkg --no-triggers -i /package", "dpkg --no-triggers -r holdfast"},
		"rpm": {"rpm -i --nodeps /package", "rpm -U --nodeps --force /package", "rpm -e holdfast"},
	} {
		t.Run(format, func(t *testing.T) {
			name, binary := packages(t, format)
			if os.Geteuid() != 0 || told(t, "unshare", "-m", "echo", "ok") != "ok\n" {
				t.Skip("only root can mount a copy of this machine's files")
			}
			tool, _, _ := strings.Cut(commands[0], " ")
			told(t, tool, "--version")
			script, err := filepath.Abs("testdata/install.sh")
			if err != nil {
				t.Fatal(err)
			}
			var errs bytes.Buffer
			install := exec.CommandContext(t.Context(), "unshare", append([]string{"-m", "sh", script, t.TempDir(), name}, commands...)...)
			install.Stderr = &errs
			out, err := install.Output()
			if err != nil && strings.Contains(errs.String(), "mount: ") {
				t.Skipf("no copy of this machine's files can be mounted: %s", errs.String())
			}
			page := "/usr/share/man/man1/holdfast-run.1"
			want := strings.Join([]string{
				"== install", "systemctl daemon-reload", "systemctl list-units --plain --no-legend --state=active holdfast@*.service",
				"7601", "/var/lib/holdfast holdfast:holdfast 750", "/etc/holdfast root:root 755", page, strings.TrimSpace(told(t, binary, "version")),
				"== upgrade", "holdfast: still the version before runs in holdfast@1.service : restart one server of the volume at a time, the primary last.",
				"systemctl daemon-reload", "systemctl list-units --plain --no-legend --state=active holdfast@*.service",
				"== remove", "systemctl daemon-reload", "systemctl stop holdfast-gateway.service holdfast@*.service", "7601", "/var/lib/holdfast", "",
			}, "\n")
			if got := string(out); err != nil || got != want {
				t.Errorf("%v\n%s\ngot:\n%s\nwant:\n%s", err, &errs, got, want)
			}
		})
	}
}

// TestSamplesAreGood has the binary check the sample configurations, also with all that is commented out in them.
func TestSamplesAreGood(t *testing.T) {
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string][]string{"server.toml": {"config", "check"}, "client.toml": {"config", "show", "--client"}} {
		text := read(t, filepath.Join(samples, name))
		for _, text := range []string{text, regexp.MustCompile(`(?m)^#(\w)`).ReplaceAllString(text, "$1")} {
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := exec.CommandContext(t.Context(), binary, check...)
			if name == "server.toml" {
				c.Args = append(c.Args, file)
			}
			c.Env = append(os.Environ(), "HOLDFAST_CLIENT_CONFIG="+file)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s\n%s", c.Args, err, out, text)
			}
		}
	}
	unit := read(t, root+"/docs/deploy/holdfast@.service")
	for file, says := range map[string]string{"sysusers.conf": "\nu holdfast 7601 ", "tmpfiles.conf": "\nd /var/lib/holdfast 0750 holdfast holdfast "} {
		if !strings.Contains(read(t, filepath.Join(samples, file)), says) {
			t.Errorf("%s does not say %q", file, says)
		}
	}
	for _, says := range []string{"User=holdfast", "Group=holdfast", "StateDirectory=holdfast", "StateDirectoryMode=0750"} {
		if !strings.Contains(unit, "\n"+says+"\n") {
			t.Errorf("the unit does not say %s, as the package does", says)
		}
	}
}

// TestImage has the binary run as in the image: alone in a root, as a user who is only a number. Docker is not needed for that.
func TestImage(t *testing.T) {
	image := read(t, root+"/docs/deploy/Dockerfile")
	for _, says := range []string{"\nFROM scratch\n", "\nUSER 7601:7601\n", "\nENTRYPOINT [\"/usr/bin/holdfast\"]\n"} {
		if strings.Count(image, says) != 1 {
			t.Errorf("the Dockerfile does not say %s", strings.TrimSpace(says))
		}
	}
	if strings.Contains(image, "\nRUN ") {
		t.Error("the image has no shell that could run anything")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can change the root directory")
	}
	dir := t.TempDir()
	share := filepath.Join(dir, "mnt")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "usr/bin/holdfast"), "./cmd/holdfast")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(share, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(share, 7601, 7601); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"version"}, {"init", "--volume", "/mnt/volume", "--server", "1=127.0.0.1"}, {"fsck", "--volume", "/mnt/volume"}} {
		c := exec.CommandContext(t.Context(), "/usr/bin/holdfast", args...)
		c.Dir, c.Env = "/", []string{}
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 7601, Gid: 7601}, Pdeathsig: syscall.SIGKILL}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
