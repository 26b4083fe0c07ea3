// SPDX-License-Identifier: Apache-2.0

// Package cli implements the commands of the holdfast binary: it parses flags, calls the
// packages that do the work and prints text or JSON. See exit.go for the exit codes.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast/clientlib/clientconfig"
	"github.com/holdfast-lock/holdfast/clientlib/join"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/doctor"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/remote"
	"github.com/holdfast-lock/holdfast/shared/sitemap"
)

// Env is what a command gets from its process, so that tests can run commands in their own:
// streams, environment variables, and the function that measures a directory.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Linked is the version that the build gave to the binary; "" = none.
	Linked string
	// Now is when text is read, with the reader's time zone; nil is time.Now.
	Now func() time.Time
	// Measure measures how fast a directory's filesystem is; nil is doctor.Measure.
	Measure func(dir string) (*doctor.Timing, error)
}

func (w Env) now() time.Time {
	if w.Now == nil {
		return time.Now()
	}
	return w.Now()
}

// Process returns the environment of this process, whose binary was linked with this version.
func Process(linked string) Env {
	return Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Linked: linked}
}

// app is one run of the command line: its environment, global flags and state.
type app struct {
	Env
	endpoints string
	ca        string       // a file with the certificate of the servers' authority
	cert      string       // a file with the certificate that is shown to servers, of --cert
	certKey   string       // the file with its key, of --cert-key
	secrets   string       // the directory of a volume's secrets, of --secrets
	cell      sitemap.Cell // of what the command names, once that is known; without endpoints, there is none
	joined    string       // the endpoints with the pin of that authority; "" = there is none
	// client is what files configure, of which clientErr is a mistake: commands that ask servers return it.
	client    clientconfig.Sourced
	clientErr error
	format    string
	budget    time.Duration
	// command is the name of the command that runs, and request the IDs of its request, if any.
	command string
	// subjects are what the command is about, as its usage names it: LOCK, FILE.
	subjects map[string]string
	request  identity
	// first is the request of the first of several pieces, with which the command is
	// repeated; 0 where there is one request only.
	first uint64
	// oneShots are the clients whose one request this command makes.
	oneShots []string
	// ran is true once the command line was parsed and its command began.
	ran bool
	// outputTaken is true if the standard output belongs to the command under the lock, or has
	// events only.
	outputTaken bool
	// flush, if not nil, writes what is still queued before the process ends.
	flush func()
	// code is the exit code of a command that returns no error; 0 unless it sets another.
	code int
}

// defaultEndpoints are the addresses that `holdfast dev` uses.
const defaultEndpoints = "127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603"

// Main runs one command and returns the exit code.
func Main(args []string, w Env) int {
	a := &app{Env: w, flush: func() {}}
	defer func() { a.flush() }()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(w.Stdin)
	root.SetOut(w.Stdout)
	root.SetErr(w.Stderr)
	c, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return a.code
	}
	if !a.ran { // cobra has no type for its errors
		err = &usageError{misuse(c, err)}
		if wantsJSON(args) { // the mistake may stand before it
			a.format = formatJSON
		}
	}
	return a.fail(err)
}

// plainFlagError returns what is wrong with a flag, without the name of the function that noticed it.
func plainFlagError(err error) string {
	text := err.Error()
	if before, _, parsed := strings.Cut(text, "strconv.Parse"); parsed {
		return before + "use a number that fits"
	}
	return text
}

// misuse returns what cobra says of a command line, in words that name the command and what it wants.
func misuse(c *cobra.Command, err error) string {
	text := err.Error()
	if missing, ok := strings.CutPrefix(text, "required flag(s) "); ok {
		names := strings.NewReplacer(`"`, "", ", ", " and --").Replace(strings.TrimSuffix(missing, " not set"))
		return fmt.Sprintf("%s: --%s must be given; see %s --help", c.Name(), names, c.CommandPath())
	}
	for _, count := range []string{"accepts ", "requires ", "unknown command "} {
		if strings.HasPrefix(text, count) && !c.HasSubCommands() {
			return fmt.Sprintf("%s: these are not its arguments: use %s; see %s --help", c.Name(), strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath())
		}
	}
	return text
}

// wantsJSON reports whether a command line that could not be parsed asks for JSON.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return false
		case arg == "-ojson", (name == "-o" || name == "--output") && given && value == formatJSON:
			return true
		case (arg == "-o" || arg == "--output") && i+1 < len(args) && args[i+1] == formatJSON:
			return true
		}
	}
	return false
}

// mark has ran set when a command begins.
func (a *app) mark(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.ran, a.command, a.subjects = true, c.Name(), subjectsOf(c, args)
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		a.mark(sub)
	}
}

// shareHelp gives all commands one --help, so that holdfast --help run prints the help of run.
func shareHelp(c *cobra.Command, help pflag.Value) {
	c.InitDefaultHelpFlag()
	c.Flags().Lookup("help").Value = help
	for _, sub := range c.Commands() {
		shareHelp(sub, help)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Locks that really protect something, for machines that share a filesystem",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		// What stands before a command is the root's, even where the command has another -o.
		TraverseChildren: true,
		Args:             unknownCommand,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			a.client, a.clientErr = clientconfig.Read(a.Getenv)
			if !c.Flags().Changed("output") {
				a.format = cmp.Or(a.client.Output, a.format)
			}
			if a.format != formatText && a.format != formatJSON {
				return usagef("--output %q: use text or json", a.format)
			}
			if a.budget <= 0 {
				return usagef("--timeout %v: use a duration like 15s", a.budget)
			}
			err := a.byAuthority()
			if err != nil && a.ca == "" { // it does not concern commands that ask no server
				a.clientErr, err = errors.Join(a.clientErr, err), nil
			}
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.Version = a.version().String()
	root.SetVersionTemplate("{{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&a.endpoints, "endpoints", "", "addresses of the servers for clients, with commas between; or, for TLS, the path of the volume, what holdfast join prints, or https:// before addresses of servers with certificates that this machine trusts (default $HOLDFAST_ENDPOINTS, that of a configuration file, or "+defaultEndpoints+")")
	flags.StringVar(&a.ca, "ca", "", "a file with the certificate of the servers' authority, such as a copy of the volume's ca.crt: TLS to the addresses of --endpoints (default $HOLDFAST_CA, or that of a configuration file)")
	flags.StringVar(&a.cert, "cert", "", "a file with a certificate that proves who you are, for servers with --client-ca, over TLS (default $HOLDFAST_CERT, or that of a configuration file)")
	flags.StringVar(&a.certKey, "cert-key", "", "a file with the key of --cert (default $HOLDFAST_CERT_KEY, or that of a configuration file)")
	flags.StringVar(&a.secrets, "secrets", "", "the directory of the secrets of a volume that does not have them itself (default $HOLDFAST_SECRETS)")
	flags.DurationVar(&a.budget, "timeout", remote.DefaultBudget, "how long to look for a server that answers")
	flags.StringVarP(&a.format, "output", "o", formatText, "text or json")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%s; see %s --help", plainFlagError(err), c.CommandPath())
	})
	root.AddCommand(
		a.initCommand(), a.serverCommand(), a.devCommand(), a.gatewayCommand(), a.configCommand(),
		a.runCommand(), a.flockCommand(), a.electCommand(), a.acquireCommand(), a.renewCommand(), a.metadataCommand(), a.downgradeCommand(), a.releaseCommand(),
		a.appendCommand(),
		a.listCommand(), a.showCommand(), a.whyCommand(), a.historyCommand(), a.watchCommand(), a.verifyCommand(), a.proofCommand(), a.outcomeCommand(),
		a.cancelCommand(), a.breakCommand(), a.fileCommand(),
		a.catCommand(), a.tailCommand(), a.blameCommand(),
		a.statusCommand(), a.handoverCommand(), a.takeoverCommand(), a.memberCommand(), a.siteCommand(), a.upgradeCommand(), a.fsckCommand(), a.recoverCommand(), a.backupCommand(), a.restoreCommand(), a.doctorCommand(), a.secureCommand(), a.joinCommand(), a.accessCommand(), a.keyCommand(), a.auditCommand(), a.versionCommand(), a.loginCommand(), a.logoutCommand(), a.whoamiCommand(), a.canCommand(),
		a.guardCommand(), a.keeperCommand(), a.holderCommand(),
	)
	inGroups(root)
	takeSeconds(root)
	root.InitDefaultHelpFlag() // else --help takes the command behind it for its value
	shareHelp(root, root.Flags().Lookup("help").Value)
	a.mark(root)
	a.completeNames(root)
	completeValues(root)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), globalFlags, "Flags of all commands, such as --endpoints and -o json: holdfast --help"))
	return root
}

// globalFlags is where cobra's text for a command has the flags of all commands: they are as long as many a command's own.
const globalFlags = `Global Flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}`

// inGroups sorts the commands of --help into groups.
func inGroups(root *cobra.Command) {
	for _, g := range []struct{ id, title, commands string }{
		{"locks", "Locks:", "run flock elect acquire renew metadata downgrade release verify proof cancel outcome"},
		{"files", "Protected files:", "append cat tail blame file"},
		{"see", "See what is going on:", "status ls show why history watch"},
		{"begin", "Begin:", "dev doctor init server gateway"},
		{"operate", "Operate:", "break handover takeover member site upgrade audit config backup restore fsck recover"},
		{"access", "Access and encryption:", "login logout whoami can access key secure join"},
		{"other", "Other:", "version"},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, name := range strings.Fields(g.commands) {
			if c, _, err := root.Find([]string{name}); err == nil {
				c.GroupID = g.id
			}
		}
	}
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
}

const rootHelp = `Holdfast gives machines that share a filesystem locks that really protect something.

Try it:   holdfast dev                             three servers on this machine
          holdfast run backup -- rsync -a /a /b    a command under a lock
          holdfast elect web -- ./serve            a command on the one machine that leads
          echo hello | holdfast append log log/a   an append that happens exactly once

With -o json each command writes one object on one line. So do errors: status, message,
advice and exit_code. watch, cat and tail write one object for each event or piece of a file.
If the standard output belongs to the command (run, elect -- COMMAND), or has events only
(watch), everything else goes to the standard error.

Exit codes:
  0    done
  1    the lock was not acquired: held, or the wait ended (-E changes it); no leader;
       fsck, doctor and backup found errors; status: the cluster serves, but needs attention
  2    usage, or an argument that the server refused; status: no server is primary
  3    the lock is no longer held: lost while the command ran, or the token is not the live one
  4    the service does not answer, or it is not known whether the request was executed
  5    refused or failed for another reason; the message says which
  6    recover or restore printed its plan, and changed nothing; config reload: a setting needs a restart
  126  run: the command cannot be executed
  127  run: the command was not found
  130  interrupted while it waited; the request was cancelled. Or while it watched
  else the exit code of the command that run ran; 128+n if signal n ended it`

// unknownCommand refuses arguments: the first would be the name of a command.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	meant := ""
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		meant = ", did you mean " + strings.Join(like, " or ") + "?"
	}
	return usagef("unknown command %q%s See %s --help", args[0], cmp.Or(meant, "."), c.CommandPath())
}

// servers returns the endpoints to use, of --endpoints, the environment, a file, or `holdfast dev`.
func (a *app) servers() []string {
	if len(a.cell.Endpoints) > 0 {
		return a.cell.Endpoints
	}
	return a.given()
}

// given is servers for what a command was given, whatever cell it asks now.
func (a *app) given() []string {
	return endpointsOf(cmp.Or(a.joined, a.endpoints, a.Getenv("HOLDFAST_ENDPOINTS"), a.client.Endpoints, defaultEndpoints))
}

// authority returns the file with the certificate of the servers' authority, "" for none. That of a file goes with the endpoints there.
func (a *app) authority() string {
	file := cmp.Or(a.ca, a.Getenv("HOLDFAST_CA"))
	if file == "" && cmp.Or(a.endpoints, a.Getenv("HOLDFAST_ENDPOINTS")) == "" {
		return a.client.CA
	}
	return file
}

// byAuthority makes the addresses of the servers a join string, if there is a certificate of their authority.
func (a *app) byAuthority() error {
	file, all := a.authority(), a.servers()
	if file == "" || a.ca == "" && len(all) > 0 && join.Whole(all[0]) { // a path or a join string says more
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return usagef("--ca, or HOLDFAST_CA: %v", err)
	}
	ca, err := join.ParseCertificate(text)
	if err != nil {
		return usagef("--ca, or HOLDFAST_CA: %s: %v", file, err)
	}
	if len(all) > 0 && join.Whole(all[0]) {
		return usagef("--ca: the endpoint %s says itself by what the servers are recognized: leave one of them out", all[0])
	}
	a.joined = join.Text(all, join.Pin(ca))
	if _, _, err := join.Parse(a.joined); err != nil {
		return usagef("--endpoints, or HOLDFAST_ENDPOINTS, with --ca: use HOST:PORT, with commas between: %v", err)
	}
	return nil
}

// endpointsOf takes a list of endpoints apart.
func endpointsOf(list string) []string {
	all := join.Split(list)
	for i, s := range all {
		if !join.Whole(s) && !strings.Contains(s, ":") { // as in init --server
			all[i] = net.JoinHostPort(s, strconv.Itoa(defaultClientPort))
		}
	}
	return all
}

// checkServers refuses texts that cannot be addresses, or no credential: a caller would try them until its time
// is over.
func (a *app) checkServers() error {
	all := a.servers()
	if err := a.checkClient(all); err != nil {
		return err
	}
	if join.Whole(all[0]) {
		if _, _, err := remote.Resolve(all, a.budget); errors.Is(err, remote.ErrNoServer) {
			return err
		} else if err != nil {
			return usagef("--endpoints, or HOLDFAST_ENDPOINTS: %v", err)
		}
		return nil
	}
	for _, s := range all {
		switch scheme, _, _ := strings.Cut(s, ":"); scheme { // targets as gRPC has them
		case "unix", "unix-abstract", "dns", "passthrough":
			continue
		}
		if err := checkAddress(s); err != nil {
			return usagef("--endpoints, or HOLDFAST_ENDPOINTS: %v: use HOST:PORT, with commas between", err)
		}
	}
	return nil
}

// checkClient refuses what says who the caller is, if it cannot be used with these endpoints, of which there has to be one.
func (a *app) checkClient(all []string) error {
	if a.clientErr != nil {
		return usagef("%v", a.clientErr)
	}
	if len(all) == 0 {
		return usagef("--endpoints, or HOLDFAST_ENDPOINTS: name at least one server, HOST:PORT of its gRPC front end")
	}
	if _, err := a.certificate()(); err != nil {
		return usagef("--cert and --cert-key: %v", err)
	}
	if _, err := a.credential()(context.Background(), ""); err != nil {
		return usagef("%v", err)
	}
	if a.cert != "" && !join.Whole(all[0]) {
		return usagef("--cert: a certificate is shown over TLS only, and %s is asked in plain text: use the path of the volume, what holdfast join prints, https:// before the address, or --ca", all[0])
	}
	return nil
}
