// SPDX-License-Identifier: Apache-2.0

package python

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/faulttests/cluster"
)

const (
	// sources is the Python package, seen from here.
	sources = "../../clients/python"
	// patience is how long one run of Python may take, on a machine with much else to do.
	patience = 8 * time.Minute
)

var faults = flag.Bool("faults", false, "run the tests of the Python package with real faults, and its mutants; they take minutes")

// python returns a Python that the package supports, or skips the test. Debian's comes first: it is what most hosts have.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import sys, ssl; sys.exit(sys.version_info < (3, 9))").Run() == nil {
			return name
		}
	}
	t.Skip("there is no Python from 3.9 on (python3)")
	return ""
}

// unittest runs tests of a copy of the package, by their names.
func unittest(t *testing.T, dir string, env []string, names ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	run := exec.CommandContext(ctx, python(t), append([]string{"-m", "unittest"}, names...)...)
	run.Dir = filepath.Join(dir, "tests")
	run.Env = append(clean(), "PYTHONPATH="+filepath.Join(dir, "src"), "PYTHONDONTWRITEBYTECODE=1", "HOME="+t.TempDir())
	run.Env = append(run.Env, env...)
	run.WaitDelay = 10 * time.Second
	out, err := run.CombinedOutput()
	return string(out), err
}

// clean is the environment without what would have the package find other servers.
func clean() (env []string) {
	for _, name := range []string{"PATH", "TMPDIR", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func here(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(sources)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPackage runs the tests of the package: those with real servers, and beside them all others, which mostly wait, too.
func TestPackage(t *testing.T) {
	python(t)
	const withServers = "test_servers"
	files, err := filepath.Glob(filepath.Join(sources, "tests", "test_*.py"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the tests of the package are %v, %v", files, err)
	}
	var alone []string
	for _, name := range files {
		if module := strings.TrimSuffix(filepath.Base(name), ".py"); module != withServers {
			alone = append(alone, module)
		}
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		passes(t, nil, alone...)
	})
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		passes(t, servers(t), withServers)
	})
}

// servers returns the environment in which tests have a binary, and ports for its servers.
func servers(t *testing.T) []string {
	t.Helper()
	python(t)
	binary, err := cluster.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"HOLDFAST_BINARY=" + binary, fmt.Sprintf("HOLDFAST_BASE_PORT=%d", cluster.FreePorts(t))}
	if *faults {
		env = append(env, "HOLDFAST_FAULTS=1")
	}
	return env
}

// passes wants tests of the package as it is to pass.
func passes(t *testing.T, env []string, names ...string) {
	t.Helper()
	out, err := unittest(t, here(t), env, names...)
	t.Log(out)
	if err != nil {
		t.Errorf("%v: %v", names, err)
	}
}
