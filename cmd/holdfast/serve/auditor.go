// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"

	"github.com/holdfast-lock/holdfast/primary/sidelog"
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/audit"
	"github.com/holdfast-lock/holdfast/shared/volume/vfs"
)

// auditor is this server's part of the audit.
type auditor struct{ *sidelog.Audit }

// newAuditor returns an auditor, which touches nothing before begin. full reports whether the log cannot grow.
func newAuditor(opt *Options, fsys vfs.FS, full func() bool) auditor {
	return auditor{sidelog.NewAudit(sidelog.AuditConfig{Server: opt.Server, FS: fsys, Log: opt.Log, Full: full})}
}

// begin tells that the server begins, by this version of the rules, and writes until end is called. That waits a moment for what is left.
func (a auditor) begin(program string, rules uint64) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	a.Record(audit.Event{Kind: audit.KindStart, Program: program, Version: rules})
	go a.Run(ctx)
	return func() {
		stop()
		a.Wait(endWait)
	}
}

// rulesChanged tells that the server goes by other rules.
func (a auditor) rulesChanged(r *access.Rules) {
	a.Record(audit.Event{Kind: audit.KindRules, Version: r.Version()})
}
