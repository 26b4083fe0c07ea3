// SPDX-License-Identifier: Apache-2.0

package work

import "github.com/spf13/pflag"

// Bind makes flags for all options, with what is in them as defaults.
func (o *Options) Bind(fl *pflag.FlagSet) {
	o.BindLoads(fl)
	o.BindStrokes(fl)
	fl.IntVar(&o.Holders, "holders", o.Holders, "locks of holders")
	fl.DurationVar(&o.HoldersTTL, "holders-ttl", o.HoldersTTL, "lease of holders")
	fl.IntVar(&o.HoldersKills, "holders-kills", o.HoldersKills, "how often holders kills the primary, of own servers, before the locks are held and again while they are")
	fl.Float64Var(&o.ChurnRate, "churn-rate", o.ChurnRate, "pairs per second of churn")
	fl.Float64Var(&o.ChurnAppends, "churn-appends", o.ChurnAppends, "appends per second of churn")
}

// BindLoads makes the flags of what runs for a while.
func (o *Options) BindLoads(fl *pflag.FlagSet) {
	fl.IntSliceVar(&o.Workers, "workers", o.Workers, "numbers of workers to try, with commas between (default: those of the workload)")
	fl.IntVar(&o.Clients, "clients", o.Clients, "how many client library clients the workers share (0: one; of holders 64)")
	fl.DurationVar(&o.Warmup, "warmup", o.Warmup, "before it counts")
	fl.DurationVar(&o.Duration, "duration", o.Duration, "how long a run counts")
	fl.IntVar(&o.Repeat, "repeat", o.Repeat, "runs of each row; the medians are printed")
	fl.Float64Var(&o.Rate, "rate", o.Rate, "operations per second of own and append, of all workers (0: as fast as they are answered)")
	fl.IntSliceVar(&o.WatchRates, "watch-rate", o.WatchRates, "events per second of watch, with commas between")
	fl.IntVar(&o.Watchers, "watchers", o.Watchers, "watchers of watch: one at a server that the library chooses, more in turn at each server")
	fl.BoolVar(&o.WatchOwn, "watch-own", o.WatchOwn, "each watcher watches a key of its own (default: all keys)")
	fl.IntSliceVar(&o.Sizes, "size", o.Sizes, "bytes of a record of append, with commas between")
}

// BindStrokes makes the flags of what is done to the servers.
func (o *Options) BindStrokes(fl *pflag.FlagSet) {
	fl.IntVar(&o.Failovers, "failovers", o.Failovers, "strokes of failover, and of pause")
	fl.IntVar(&o.Handovers, "handovers", o.Handovers, "handovers of handover")
}
