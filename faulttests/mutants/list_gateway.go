// SPDX-License-Identifier: Apache-2.0

package mutants

// gatewayMutants break rules of gateways, and of servers and clients with one between them.
var gatewayMutants = []Mutant{
	{
		Name: "gateway-of-one-cell",
		Rule: "a gateway passes on connections to all cells of which the servers tell (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/site.go", `		s.told(r)
`, ``}},
		By: unit("cmd/holdfast/gateway", "^TestGatewayOfASite$"), Dies: `waited 10s for the primary of each cell`,
	},
	{
		Name:  "port-of-another-cell",
		Rule:  "the port of a cell is as far from that of the named one as their numbers (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `sitemap.Through([]string{c.at}, *c.mu.id, id)`, `sitemap.Through([]string{c.at}, 0, id)`}},
		By:    unit("cmd/holdfast/gateway", "^TestGatewayOfASite$"), Dies: `waited 10s for the primary of each cell`,
	},
	{
		Name:  "planned-cell-passed-on-to",
		Rule:  "no gateway passes on to the addresses of a cell that nobody has read (PROTOCOL 23.8)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `if x.GetClusterId() == "" || `, `if `}},
		By:    unit("cmd/holdfast/gateway", "^TestGatewayOfASite$"), Dies: `whoever is where cell 2 was planned`,
	},
	{
		Name: "cell-of-any-cluster",
		Rule: "a gateway passes on to servers of the cluster that the cell is (PROTOCOL 23.8)",
		Edits: []Edit{{"cmd/holdfast/gateway/site.go", `	s.known.Check(clusterID)
`, ``}},
		By: unit("cmd/holdfast/gateway", "^TestServersOfAnotherCellAreNone$"), Dies: `connections go to`,
	},
	{
		Name: "bounds-for-each-port",
		Rule: "a gateway bounds the connections of all its ports together (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `g.run(c.ctx, c.bounded(l))`,
			`g.run(c.ctx, serve.Bounded(c.opt.Log, c.opt.Connections, c.opt.PerAddress, descriptors, func() { c.counts.refuse(tooMany) })(l))`}},
		By: unit("cmd/holdfast/gateway", "^TestPortsShareTheirBounds$"), Dies: `waited 10s for two to be refused`,
	},
	{
		Name:  "gateway-waits-for-a-volume",
		Rule:  "a volume of a site that is lost holds up no other one behind a gateway (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `	if g == nil || err != nil {`, `	if g == nil || err != nil || g == c.first {`}},
		By:    unit("cmd/holdfast/gateway", "^TestDirectoryOfASite$"), Dies: `waited 10s for the primary of both`,
	},
	{
		Name:  "volume-read-once",
		Rule:  "a gateway reads a volume of a site until it can (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `		if !retry.Rest(c.ctx, findEvery) {`, `		if g != nil || !retry.Rest(c.ctx, findEvery) {`}},
		By:    unit("cmd/holdfast/gateway", "^TestDirectoryOfASite$"), Dies: `waited 10s for the primary of both`,
	},
	{
		Name: "plain-text-that-waited",
		Rule: "a connection in plain text that waited for a server is refused, if that is known by a certificate by then (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/pass.go", `	if g.refusesPlain(c, opening) { // by now it knows its servers, and by what
		return
	}
`, ``}},
		By: unit("cmd/holdfast/gateway", "^TestPlainTextIsRefusedLater$"), Dies: `i/o timeout`,
	},
	{
		Name: "late-begin-is-orphaned",
		Rule: "a gateway waits for a primary from when it knows its servers (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/site.go", `	s.mu.since = time.Now()
`, ``}},
		By: unit("cmd/holdfast/gateway", "^TestLateBeginWaitsForThePrimary$"), Dies: `after half of the time`,
	},
	{
		Name: "cell-goes-nowhere-else",
		Rule: "a gateway learns of new servers of a cell from those of others (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `		g.site.learn(x.GetClients())
`, ``}},
		By: unit("cmd/holdfast/gateway", "^TestCellMoves$"), Dies: `waited 10s for the cell at its other server`,
	},
	{
		Name: "cell-becomes-another-cluster",
		Rule: "a gateway stays with the cluster that it knows (docs/gateway.md)",
		Edits: []Edit{{"cmd/holdfast/gateway/cells.go", `	default:
		return errOtherCluster`, `	default:
		g.site.learn(x.GetClients())`}},
		By: unit("cmd/holdfast/gateway", "^TestCellMoves$"), Dies: `waited 10s for the other cluster`,
	},
	{
		Name:  "told-path-is-read",
		Rule:  "what a server tells of another cell is an address, and no path (PROTOCOL 23.8)",
		Edits: []Edit{{"clientlib/join/trust.go", `err != nil || Whole(a) {`, `err != nil {`}},
		By:    unit("cmd/holdfast/gateway", "^TestCellMoves$"), Dies: `waited 10s for the path to be found`,
	},
	{
		Name:  "cells-behind-a-gateway-unknown",
		Rule:  "clients compute the ports by which a gateway leads to other cells (PROTOCOL 23.8)",
		Edits: []Edit{{"shared/sitemap/sitemap.go", `		if r.GetGateway() {`, `		if r == nil {`}},
		By:    unit("shared/sitemap", "^TestSiteThroughGateways$"), Dies: `cell 0 \[\] `,
	},
	{
		Name: "gateway-lends-its-user",
		Rule: "a gateway lends its clients neither its user nor a socket's (docs/gateway.md)",
		Edits: []Edit{
			{"shared/frontend/clientport/gateway.go", `Gateway: true}`, `Gateway: true, Caller: serving.CallerAt(c.RemoteAddr())}`},
		},
		By:   unit("shared/frontend/clientport", "^TestAGatewayLendsNoUser$"),
		Dies: `through a gateway, it is `,
	},
	{
		Name: "gateway-lends-its-host",
		Rule: "where TLS is required, a gateway on the server's own host opens no way for plain text (docs/gateway.md)",
		Edits: []Edit{
			{"shared/frontend/clientport/plain.go", `	if serving.ThroughGateway(c.RemoteAddr()) {
		return true
	}
`, ``},
		},
		By:   unit("shared/frontend/clientport", "^TestPlainTextThroughAGatewayIsRefused$"),
		Dies: `i/o timeout`,
	},
	{
		Name: "gateway-is-not-overheard",
		Rule: "plain text through a gateway is from another host (docs/gateway.md)",
		Edits: []Edit{
			{"shared/serving/caller.go", `		return !known.TLS
`, `		return !known.TLS && PlainTCP(a) && false
`},
		},
		By:   unit("shared/serving", "^TestOverheard$"),
		Dies: `a gateway on this host: false`,
	},
	{
		Name: "gateway-forgotten-inside-TLS",
		Rule: "over TLS, too, a server tells a client that it comes through a gateway (docs/gateway.md)",
		Edits: []Edit{
			{"shared/frontend/clientport/tls.go", `, Gateway: serving.ThroughGateway(c.RemoteAddr())}`, `}`},
		},
		By:   unit("shared/frontend/clientport", "^TestTLSThroughAGateway$"),
		Dies: `it is from `,
	},
	{
		Name: "preface-inside-TLS",
		Rule: "a client cannot say inside TLS what a gateway says (docs/gateway.md)",
		Edits: []Edit{
			{"shared/frontend/clientport/tls.go", `class == overTLS || class == gateway {`, `class == overTLS {`},
		},
		By:   unit("shared/frontend/clientport", "^TestPrefaceOnlyOnce$"),
		Dies: `index out of range`,
	},
	{
		Name: "client-learns-of-ways-around",
		Rule: "a client that comes through a gateway takes no server from a list (docs/gateway.md)",
		Edits: []Edit{
			{"clientlib/servers.go", `	if s.gateway.Load() {
		return
	}
`, ``},
		},
		By:   unit("clientlib", "^TestAClientStaysWithItsGateways$"),
		Dies: `the client goes around its gateways`,
	},
	{
		Name: "client-follows-around-its-gateway",
		Rule: "a client that comes through a gateway goes to no server that an answer names (docs/gateway.md)",
		Edits: []Edit{
			{"clientlib/servers.go", `	if addr == "" || s.gateway.Load() {
`, `	if addr == "" {
`},
		},
		By:   unit("clientlib", "^TestAClientStaysWithItsGateways$"),
		Dies: `the client goes around its gateways`,
	},
	{
		Name: "command-follows-around-its-gateway",
		Rule: "a command that comes through a gateway goes to no server that a refusal names (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/remote/remote.go", ` && !c.throughGateway(ctx) {`, ` {`},
		},
		By:   unit("cmd/holdfast/remote", "^TestStaysWithAGateway$"),
		Dies: `the call went around the gateway`,
	},
	{
		Name: "command-looks-around-its-gateway",
		Rule: "a command that comes through a gateway looks for the primary there alone (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/remote/locate.go", ` && !w.reply.GetGateway() {`, ` {`},
		},
		By:   unit("cmd/holdfast/remote", "^TestStaysWithAGateway$"),
		Dies: `the call went around the gateway`,
	},
	{
		Name: "gateway-believes-a-former-primary",
		Rule: "connections go to the primary of the newest epoch that any server has heard of (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/site.go", ` && v.epoch == newest}`, `}`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestChoose$"),
		Dies: `a primary of an earlier epoch: `,
	},
	{
		Name: "gateway-uses-another-cluster",
		Rule: "connections go to servers of one cluster (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/site.go", `Msg("a server of another cluster is not used: look at the site")
		s.silent(v)
		return
`, `Msg("a server of another cluster is not used: look at the site")
`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestServersOfTheSite$"),
		Dies: `stranger`,
	},
	{
		Name: "gateway-goes-in-circles",
		Rule: "a gateway passes on to servers, never to a gateway, which may be itself (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/site.go", ` < freshFor && !v.gateway
`, ` < freshFor
`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestChoose$"),
		Dies: `a gateway: `,
	},
	{
		Name: "gateway-stays-with-a-former-primary",
		Rule: "connections to a former primary end (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/gateway.go", `		if k.elsewhere(addr) {
			k.close()
`, `		if k.elsewhere(addr) {
`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestConnectionsFollowThePrimary$"),
		Dies: `i/o timeout`,
	},
	{
		Name: "gateway-waits-for-a-frozen-primary",
		Rule: "connections to a primary that hangs end at once when another one serves (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/gateway.go", `	if answers {
		wait`, `	if wait == 0 {
		wait`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestConnectionsFollowThePrimary$"),
		Dies: `it ends after`,
	},
	{
		Name: "gateway-cuts-last-words",
		Rule: "a former primary that lives has the time to send its last answers (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/gateway.go", `	if answers {
		wait`, `	if wait > 0 {
		wait`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestConnectionsFollowThePrimary/answers=true$"),
		Dies: `FAIL`,
	},
	{
		Name: "late-connection-to-a-former-primary",
		Rule: "a connection that is made while the primary changes does not stay with the former one (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/pass.go", `g.mu.over || g.site.latest().addr != addr {`, `g.mu.over {`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestALateConnectionGoesElsewhere$"),
		Dies: `it goes to the former primary`,
	},
	{
		Name: "gateway-keeps-gone-clients",
		Rule: "a client that has gone is gone for its server, too (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/pass.go", `	k.close()
	return false
`, `	return false
`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestClientThatHasGone$"),
		Dies: `i/o timeout`,
	},
	{
		Name: "gateway-lingers",
		Rule: "a connection that its server has ended holds a gateway no longer than a moment (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/pass.go", `		_ = k.client.SetReadDeadline(time.Now().Add(lingerWait))
`, ``},
		},
		By:   unit("cmd/holdfast/gateway", "^TestServerThatEnds$"),
		Dies: `for the connection to end`,
	},
	{
		Name: "gateway-passes-plain-text",
		Rule: "where servers are known by a certificate, a gateway passes no plain text on (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/pass.go", `	if !g.site.requiresTLS() || !opening.Plain() {`, `	if !g.site.requiresTLS() || opening.First != nil {`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestPlainTextIsRefused$"),
		Dies: `i/o timeout`,
	},
	{
		Name: "gateway-ready-without-a-primary",
		Rule: "a gateway is ready only while it knows the primary (docs/gateway.md)",
		Edits: []Edit{
			{"cmd/holdfast/gateway/health.go", `		case !c.primaryKnown():
`, `		case c.primaryKnown() && c.first == nil:
`},
		},
		By:   unit("cmd/holdfast/gateway", "^TestHealth$"),
		Dies: `no server is known to be primary`,
	},
}
