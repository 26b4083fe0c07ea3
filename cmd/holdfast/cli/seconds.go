// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// parseDuration parses a duration such as 90s or 1h30m, or a plain number of seconds, as flock
// and sleep take it.
func parseDuration(text string) (time.Duration, error) {
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("use seconds, such as 30, or a duration such as 500ms, 30s or 1h30m")
	}
	return d, nil
}

// durationFlag is a duration flag that takes a plain number of seconds, too.
type durationFlag struct{ pflag.Value }

// Set implements pflag.Value.
func (f durationFlag) Set(text string) error {
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	return f.Value.Set(d.String())
}

// acceptSeconds has a flag take plain seconds if it is a duration.
func acceptSeconds(f *pflag.Flag) {
	if _, done := f.Value.(durationFlag); done || f.Value.Type() != "duration" {
		return
	}
	f.Value = durationFlag{f.Value}
	if f.DefValue == "0s" {
		f.DefValue = "0" // else --help prints it as a default
	}
}

// takeSeconds has all duration flags of a command, and of those below it, take plain seconds.
func takeSeconds(c *cobra.Command) {
	c.PersistentFlags().VisitAll(acceptSeconds)
	c.Flags().VisitAll(acceptSeconds)
	for _, sub := range c.Commands() {
		takeSeconds(sub)
	}
}
