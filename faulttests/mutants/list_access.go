// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	accessPkg     = "shared/access"
	accessTextPkg = "cmd/holdfast/access"
	rulesFile     = "shared/volume/rules.go"
)

// accessMutants break the access rules: what they permit, their versions on the volume, and which one is in force.
var accessMutants = []Mutant{
	{
		Name: "lock-and-file-by-two-rules",
		Rule: "one rule has to cover both the lock and the file (package access, May)",
		Edits: []Edit{
			{accessPkg + "/rights.go", `(lock == "" || fitsOne(r.locks, lock)) && (file == "" || fitsOne(r.files, file))`, `(lock != "" && fitsOne(r.locks, lock) || file != "" && fitsOne(r.files, file))`},
		},
		By: unit(accessPkg, "^TestMay$"), Dies: `service:log may append "x" "x": true`,
	},
	{
		Name: "star-crosses-slash",
		Rule: "a * reaches to the next slash (package access, fits)",
		Edits: []Edit{
			{accessPkg + "/glob.go", `		if at < 0 || strings.Contains(name[:at], "/") {`, `		if at < 0 {`},
		},
		By: unit(accessPkg, "^TestFitsAsNaive$"), Dies: `true, want false`,
	},
	{
		Name: "name-widens-pattern",
		Rule: "an identity's name with a slash fits no {name} (package access, of)",
		Edits: []Edit{
			{accessPkg + "/glob.go", ` || strings.Contains(name, "/") {
		return g, false`, ` {
		return g, false`},
		},
		By: unit(accessPkg, "^TestMay$"), Dies: `user:a/b may acquire "home/a/b/x" "": true`,
	},
	{
		Name: "group-is-identity",
		Rule: "a group with the name of an identity is not one (package access, is)",
		Edits: []Edit{
			{accessPkg + "/access.go", `	return who == c.Identity
}`, `	return who == c.Identity || slices.Contains(c.Groups, who)
}`},
		},
		By: unit(accessPkg, "^TestMay$"), Dies: `user:alice may acquire "astro/x" "": true`,
	},
	{
		Name: "prefix-by-name",
		Rule: "a prefix is covered only by a pattern that ends with ** (package access, MayPrefix)",
		Edits: []Edit{
			{accessPkg + "/rights.go", `return g.rest && g.fits(prefix)`, `return g.fits(prefix)`},
		},
		By: unit(accessPkg, "^TestMayPrefix$"), Dies: `prefix "x": true`,
	},
	{
		Name: "removed-key-lives",
		Rule: "who rests on a key that was removed is revoked (package access, Revoked)",
		Edits: []Edit{
			{accessPkg + "/rules.go", `		if !ok {
			return true`, `		if !ok {
			return false`},
		},
		By: unit(accessPkg, "^TestKeysAndRevocations$"), Dies: `is revoked: false`,
	},
	{
		Name: "later-key-for-earlier",
		Rule: "a new key with the name of an old one is another key (package access, Revoked)",
		Edits: []Edit{
			{accessPkg + "/rules.go", `!c.Issued.IsZero() && !created.IsZero() && c.Issued.Unix() != created.Unix()`, `!ok && !created.IsZero()`},
		},
		By: unit(accessPkg, "^TestKeysAndRevocations$"), Dies: `is revoked: false`,
	},
	{
		Name: "rules-replaced",
		Rule: "a version of the rules is never replaced (package volume, PublishRules)",
		Edits: []Edit{
			{rulesFile, `	err := fsys.Link(tmp, name)
`, `	err := fsys.Rename(tmp, name)
`},
		},
		By: unit("shared/volume", "^TestTwoPublishers$"), Dies: `at call`,
	},
	{
		Name: "rules-not-durable",
		Rule: "a version that was published is durable (package volume, PublishRules)",
		Edits: []Edit{
			{rulesFile, `	return fsys.SyncDir(layout.AccessDir)
}`, `	return nil
}`},
		},
		By: unit("shared/volume", "^TestInterruptedPublish$"), Dies: `and versions \[1\], then \[\]`,
	},
	{
		Name: "read-rules-not-durable",
		Rule: "a version that a server read does not vanish (package volume, ReadRules)",
		Edits: []Edit{
			{rulesFile, `	if err == nil {
		err = fsys.SyncDir(layout.AccessDir)
	}
`, ``},
		},
		By: unit("shared/volume", "^TestWhatIsReadStays$"), Dies: `versions \[\]`,
	},
	{
		Name: "exposed-rules-used",
		Rule: "rules that others may change or read are refused (package volume, ReadRules)",
		Edits: []Edit{
			{rulesFile, `		case info.Mode&0o077 != 0:`, `		case false:`},
		},
		By: unit("shared/volume", "^TestExposedRulesAreRefused$"), Dies: `is exposed: `,
	},
	{
		Name: "rules-go-back",
		Rule: "the rules in force never go back to a lower version (package access, list)",
		Edits: []Edit{
			{accessTextPkg + "/live.go", `		if n > own && !slices.Contains`, `		if n != own && !slices.Contains`},
		},
		By: unit(accessTextPkg, "^TestLiveNeverGoesBack$"), Dies: `is in force, want 3`,
	},
	{
		Name: "broken-rules-open",
		Rule: "a server whose rules cannot be used does not start without them (package access, OpenLive)",
		Edits: []Edit{
			{accessTextPkg + "/live.go", `	if len(all) > 0 && l.Rules() == nil {`, `	if false {`},
		},
		By: unit(accessTextPkg, "^TestOpenLiveRefuses$"), Dies: `nothing parses: <nil>`,
	},
	{
		Name: "update-overwrites",
		Rule: "a change of the rules is made to the newest version (package access, Update)",
		Edits: []Edit{
			{accessTextPkg + "/access.go", `		err = volume.PublishRules(fsys, random, version, text)
`, `		all, _ := volume.RulesVersions(fsys)
		err = volume.PublishRules(fsys, random, all[len(all)-1], text)
`},
		},
		By: unit(accessTextPkg, "^TestUpdate$"), Dies: `version 2: <nil>`,
	},
	{
		Name: "init-equips-late",
		Rule: "a new volume has its rules, and requires TLS, before it has a CLUSTER (package volume, InitWith)",
		Edits: []Edit{
			{"shared/volume/init.go", `	if err := equip(begun); err != nil {
		return c, fmt.Errorf("init: %w", err)
	}
	if err := linkCluster(fsys, begun); err != nil {
		return c, fmt.Errorf("init: CLUSTER: %w", err)
	}`, `	if err := linkCluster(fsys, begun); err != nil {
		return c, fmt.Errorf("init: CLUSTER: %w", err)
	}
	if err := equip(begun); err != nil {
		return c, fmt.Errorf("init: %w", err)
	}`},
		},
		By: unit("shared/volume", "^TestInitEquipsBeforeAnybodyMayServe$"), Dies: `there is a CLUSTER, and not all that is to be there before`,
	},
	{
		Name: "init-open-by-default",
		Rule: "a new volume has access rules unless somebody says otherwise (package cli, init)",
		Edits: []Edit{
			{"cmd/holdfast/cli/equip.go", `"policy", rules.Team, "who may use it`, `"policy", rules.Open, "who may use it`},
		},
		By: unit("cmd/holdfast/cli", "^TestInitIsSecure$"), Dies: `everybody may do everything`,
	},
	{
		Name: "init-plain-by-default",
		Rule: "a new volume requires TLS of clients on other hosts unless somebody says otherwise (package cli, requireTLS)",
		Edits: []Edit{
			{"cmd/holdfast/cli/equip.go", `		return volume.RequireClientTLS(f)
	}
	required`, `		return nil
	}
	required`},
		},
		By: unit("cmd/holdfast/cli", "^TestInitIsSecure$"), Dies: `"client_tls_required":false`,
	},
	{
		Name: "unfinished-init-loses-its-rules",
		Rule: "an init does not complete an unfinished one that had other rules (package cli, publish)",
		Edits: []Edit{
			{"cmd/holdfast/cli/equip.go", `	case !bytes.Equal(text, want):
		return errOtherInit
`, ``},
			{"cmd/holdfast/cli/equip.go", `	there, text, err := rules.Newest(f)`, `	there, _, err := rules.Newest(f)`},
			{"cmd/holdfast/cli/equip.go", `	"bytes"
`, ``},
		},
		By: unit("cmd/holdfast/cli", "^TestInitIsSecure$"), Dies: `another init began here`,
	},
}
