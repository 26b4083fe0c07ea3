// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	all  = flag.Bool("mutants", false, "run every mutant")
	only = flag.String("mutants.run", "", "run the mutants whose name matches this `regexp`")
	fast = flag.Bool("mutants.fast", false, "run the fast mutants")
	long = flag.Duration("mutants.limit", 4*time.Minute, "give a killer this `time`; none needs half of it on an idle machine")
	base = flag.Bool("mutants.baseline", true, "first want the killers to pass on the product as it is")
	side = flag.Int("mutants.parallel", 1, "run so many `mutants` at once")
)

// chosen are the mutants that the flags ask for.
func chosen(t *testing.T) (list []Mutant) {
	t.Helper()
	name, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range List() {
		if *all && *only == "" || *only != "" && name.MatchString(m.Name) || *fast && m.Fast {
			list = append(list, m)
		}
	}
	return list
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestPatchesFit keeps the list alive: every edit fits exactly once, and what
// comes out is Go.
func TestPatchesFit(t *testing.T) {
	root := moduleRoot(t)
	seen := map[string]bool{}
	fastOnes := 0
	for _, m := range List() {
		if seen[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		seen[m.Name] = true
		if m.Fast {
			fastOnes++
		}
		if _, err := regexp.Compile(m.Dies); err != nil {
			t.Errorf("mutant %s: what it dies of: %v", m.Name, err)
		}
		files, err := m.patch(root)
		if err != nil {
			t.Error(err)
		}
		for name, text := range files {
			if !strings.HasSuffix(name, ".go") {
				continue // the killer says so if it is nothing that runs
			}
			if _, err := format.Source([]byte(text)); err != nil {
				t.Errorf("mutant %s: %s: %v", m.Name, name, err)
			}
		}
	}
	if fastOnes != 5 {
		t.Errorf("%d fast mutants, want 5", fastOnes)
	}
}

// TestMutants wants the killer of each chosen mutant to fail twice, with the words that the
// mutant names: a failure that comes by chance, or for another reason, is no kill.
func TestMutants(t *testing.T) {
	list := chosen(t)
	if len(list) == 0 {
		t.Skip("run with -mutants, -mutants.fast or -mutants.run REGEXP")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is not there to compile mutants")
	}
	l := &lab{t: t, root: moduleRoot(t), dir: t.TempDir(), clean: map[string]string{}}
	passed := map[Killer]bool{}
	for _, m := range list {
		if *base && !passed[m.By] {
			passed[m.By] = l.baseline(m.By)
		}
	}
	verdicts := l.runAll(list)
	table := []string{fmt.Sprintf("%-40s %-7s %s", "mutant", "time", "killed by")}
	killed := 0
	for i, m := range list {
		v := verdicts[i]
		if v.err != nil {
			t.Errorf("%s: %v\n  by: %v", m.Name, v.err, m.By)
		} else {
			killed++
		}
		table = append(table, v.row(&m))
	}
	t.Logf("%d of %d mutants killed\n%s", killed, len(list), strings.Join(table, "\n"))
}

// runAll runs the mutants, several at once where that was asked for, and returns their verdicts in the same order.
func (l *lab) runAll(list []Mutant) []verdict {
	verdicts := make([]verdict, len(list))
	var done atomic.Int64
	var g errgroup.Group
	g.SetLimit(max(1, *side))
	for i := range list {
		g.Go(func() error {
			verdicts[i] = l.run(&list[i])
			l.t.Logf("%d/%d %s", done.Add(1), len(list), verdicts[i].row(&list[i]))
			return nil
		})
	}
	g.Wait() //nolint:errcheck // no function returns an error
	return verdicts
}

// lab compiles and runs killers.
type lab struct {
	t     *testing.T
	root  string
	dir   string
	clean map[string]string // test binaries of the product as it is, by package
}

// verdict is what one run of a killer said.
type verdict struct {
	test, word string // the first test that failed, and its first line
	took       time.Duration
	err        error // nil when a test failed as it should
}

func (v verdict) String() string {
	if v.err != nil {
		return "SURVIVED: " + strings.SplitN(v.err.Error(), "\n", 2)[0]
	}
	return v.test + ": " + v.word
}

// row is one line of the table of all mutants.
func (v verdict) row(m *Mutant) string {
	return fmt.Sprintf("%-40s %-7s %s", m.Name, v.took.Round(100*time.Millisecond), v)
}

// baseline wants a killer to pass where nothing is broken.
func (l *lab) baseline(k Killer) bool {
	bin, ok := l.clean[k.Pkg]
	if !ok {
		bin = filepath.Join(l.dir, strings.ReplaceAll(k.Pkg, "/", "_")+".test")
		if err := l.compile(k.Pkg, bin, ""); err != nil {
			l.t.Fatal(err)
		}
		l.clean[k.Pkg] = bin
	}
	began := time.Now()
	out, err := l.execute(bin, k)
	if err != nil {
		l.t.Fatalf("the product as it is does not pass %v: %v\n%s", k, err, tail(out))
	}
	if strings.Contains(out, "no tests to run") {
		l.t.Fatalf("%v runs nothing", k)
	}
	l.t.Logf("baseline %v: passed in %v", k, time.Since(began).Round(100*time.Millisecond))
	return true
}

var (
	errSurvived = errors.New("no test noticed")
	errOnce     = errors.New("a test noticed once, but not again: a kill by chance is none")
)

// tries is how often a killer runs to kill its mutant twice: what is drawn by chance may miss it once.
const tries = 3

// run runs the killer of a mutant until it has killed the mutant twice.
func (l *lab) run(m *Mutant) (v verdict) {
	began := time.Now()
	defer func() { v.took = time.Since(began) }()
	dir, err := os.MkdirTemp(l.dir, m.Name+"-")
	if err != nil {
		return verdict{err: err}
	}
	defer os.RemoveAll(dir) //nolint:errcheck // below the test's own directory
	bin := filepath.Join(dir, "killer.test")
	if err := l.compileMutant(m, bin); err != nil {
		return verdict{err: err}
	}
	var killed []verdict
	for range tries {
		v = l.kill(m, bin)
		if v.err == nil {
			killed = append(killed, v)
		}
		switch {
		case len(killed) == 2:
			return killed[0]
		case v.err != nil && !errors.Is(v.err, errSurvived):
			return v // more tries would not help
		}
	}
	if len(killed) > 0 {
		v.err = fmt.Errorf("%w: %v", errOnce, killed[0])
	}
	return v
}

// kill runs a mutant's killer once.
func (l *lab) kill(m *Mutant, bin string) (v verdict) {
	dies := regexp.MustCompile("(?s)" + m.Dies)
	out, err := l.execute(bin, m.By, "-test.failfast")
	if _, failed := errors.AsType[*exec.ExitError](err); failed && !dies.MatchString(out) && !strings.Contains(out, "panic: ") {
		out, err = l.execute(bin, m.By) // cases in no order: another one came first
	}
	switch {
	case err == nil:
		return verdict{err: errSurvived}
	case strings.Contains(out, "panic: test timed out"), errors.Is(err, context.DeadlineExceeded):
		return verdict{err: fmt.Errorf("time ran out:\n%s", tail(out))}
	}
	v.test, v.word = firstFailure(out)
	switch {
	case v.test == "":
		v.err = fmt.Errorf("%w, but no test failed:\n%s", err, tail(out))
	case !dies.MatchString(out):
		v.err = fmt.Errorf("a test failed, but for another reason: nothing says %q:\n%s", m.Dies, tail(out))
	}
	return v
}

// compileMutant makes the test binary of a mutant's killer, and what it needs for that beside it.
func (l *lab) compileMutant(m *Mutant, bin string) error {
	overlay, err := m.overlay(l.root, filepath.Dir(bin))
	if err != nil {
		return err
	}
	return l.compile(m.By.Pkg, bin, overlay)
}

// compile makes a test binary.
func (l *lab) compile(pkg, bin, overlay string) error {
	args := []string{"test", "-c", "-o", bin}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(l.t.Context(), "go", append(args, "./"+pkg)...)
	cmd.Dir = l.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not compile: %w\n%s", err, out)
	}
	return nil
}

// execute runs a killer's tests in its package's directory, with these flags besides its own.
func (l *lab) execute(bin string, k Killer, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), *long+10*time.Second)
	defer cancel()
	args := append([]string{"-test.run", k.Run, "-test.timeout", long.String()}, strings.Fields(k.Flags)...)
	cmd := exec.CommandContext(ctx, bin, append(args, flags...)...)
	cmd.Dir = filepath.Join(l.root, k.Pkg)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}

// failure is a line that names a test, or the panic of one.
var failure = regexp.MustCompile(`^\s*--- FAIL: (\S+)|^(panic|fatal error): `)

// violation is a line that names a broken invariant.
var violation = regexp.MustCompile(`^(.*: )?(I\d+|house rule|Check): `)

// firstFailure is the first test that failed and its first line, or better the
// first that names a broken invariant.
func firstFailure(out string) (test, word string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "{") {
			continue // of the product's own log
		}
		if violation.MatchString(line) {
			return test, clip(line)
		}
		m := failure.FindStringSubmatch(line)
		switch {
		case m == nil && test != "" && line != "" && word == "":
			word = clip(line)
		case m == nil:
		case word != "":
			return test, word
		case m[1] != "":
			test = m[1]
		default:
			return max(test, "panic"), clip(line)
		}
	}
	return test, word
}

func clip(s string) string { return s[:min(len(s), 110)] }

// tail is the end of a long output.
func tail(s string) string { return s[max(0, len(s)-3000):] }
