// SPDX-License-Identifier: Apache-2.0

package mutants

// terraformMutants break the rules by which states of Terraform are kept.
var terraformMutants = []Mutant{
	{
		Name: "state-id-unchecked", Also: "",
		Rule: "only who holds the lock under its lock ID writes a state, or releases the lock (package service, ExecuteHeld)",
		Edits: []Edit{
			{"shared/frontend/service/held.go", `l.Grant.Token != 0 && l.Grant.Client == holder`, `l.Grant.Token != 0`},
		},
		By: unit("shared/frontend", "^TestTerraform$"), Dies: `200 .*want 409 with "does not hold"`,
	},
	{
		Name: "state-repeat-needs-the-lock", Also: "",
		Rule: "a write that was executed is answered so, though the lock is lost by then (package service, ExecuteHeld)",
		Edits: []Edit{
			{"shared/frontend/service/held.go", `state == locktable.RequestExecuted {`, `state == locktable.RequestExecuted && l.Grant.Client == holder {`},
		},
		By: unit("shared/frontend", "^TestTerraformRepeats$"), Dies: `409 .*want 200`,
	},
	{
		Name: "state-copy-becomes-newest", Also: "",
		Rule: "a copy of an earlier write is never executed after a later one (package terraform)",
		Edits: []Edit{
			{"shared/frontend/httpapi/terraform.go", `ID: request, LowWater: request, Lock`, `ID: request, Lock`},
		},
		By: unit("shared/frontend", "^TestTerraformRepeats$"), Dies: `never seen|want 409 with "STALE_REQUEST"`,
	},
	{
		Name: "state-executed-twice", Also: "",
		Rule: "a repeat of a write is the same request (package httpapi, writeState)",
		Edits: []Edit{
			{"shared/frontend/httpapi/terraform.go", `Client: terraform.Writer(id), ID: request`, `Client: terraform.Writer(id + r.RemoteAddr + fmt.Sprint(time.Now().UnixNano())), ID: request`},
			{"shared/frontend/httpapi/terraform.go", `	"strings"

`, `	"strings"
	"time"

`},
		},
		By: unit("shared/frontend", "^TestTerraformRepeats$"), Dies: `POST again`,
	},
	{
		Name: "state-write-keeps-no-lease", Also: "",
		Rule: "an accepted use of a token renews its lease, so whoever writes states keeps the lock (package primary, core)",
		Edits: []Edit{
			{"primary/core.go", `len(recs) > 0 && q.Token != 0 {`, `len(recs) > 0 && q.Token != 0 && q.Op != locktable.OpAppend {`},
		},
		By: unit("shared/frontend", "^TestTerraformIsFencedByItsLockID$"), Dies: `409 .*want 200 with "OK"|nobody does`,
	},
	{
		Name: "state-empty-unlock-releases", Also: "",
		Rule: "an UNLOCK that does not say whose lock it means, as force-unlock, releases none and says what does (package httpapi, unlockState)",
		Edits: []Edit{
			{"shared/frontend/httpapi/terraform.go", `if len(body) == 0 {`, `if len(body) < 0 {`},
		},
		By: unit("shared/frontend", "^TestTerraform$"), Dies: `want 400 with "holdfast break`,
	},
	{
		Name: "state-held-without-info", Also: "",
		Rule: "who does not get the lock is told who has it, in Terraform's words (package httpapi, heldState)",
		Edits: []Edit{
			{"shared/frontend/httpapi/terraform.go", `held.Metadata = l.GetLock().GetGrant().GetMetadata()`, `held.Metadata = ""`},
		},
		By: unit("shared/frontend", "^TestTerraform$"), Dies: `who holds it: `,
	},
	{
		Name: "state-info-of-another", Also: "",
		Rule: "a LockInfo is told only as that of the client that said it (package terraform, InfoOf)",
		Edits: []Edit{
			{"shared/frontend/terraform/terraform.go", `err == nil && clientOf(i.ID) == string(h.Client) {`, `err == nil {`},
		},
		By: unit("shared/frontend/terraform", "^TestInfoOf$"), Dies: `Client:other`,
	},
	{
		Name: "state-rotated-is-none", Also: "",
		Rule: "a state that was moved away is not told as none (package service, LastAppend)",
		Edits: []Edit{
			{"shared/frontend/service/held.go", `case state.LastLength == 0:`, `case state.LastLength == 0 && state.Sealed:`},
		},
		By: unit("shared/frontend", "^TestTerraformTellsNoStateOnlyWhereThereIsNone$"), Dies: `want 409 with "since it was rotated`,
	},
	{
		Name: "state-unbound-is-none", Also: "",
		Rule: "a state whose file is bound no more is not told as none (package service, mustBeNew)",
		Edits: []Edit{
			{"shared/frontend/service/held.go", `return n > 0, err`, `return n > 1, err`},
		},
		By: unit("shared/frontend", "^TestTerraformTellsNoStateOnlyWhereThereIsNone$"), Dies: `want 409 with "bound to no lock`,
	},
	{
		Name: "state-password-everywhere", Also: "",
		Rule: "basic authentication is taken on the paths of states only (package httpapi, basicCredential)",
		Edits: []Edit{
			{"shared/frontend/httpapi/terraform.go", `!strings.HasPrefix(r.URL.Path, terraformPath)`, `!strings.HasPrefix(r.URL.Path, "/v1/")`},
		},
		By: unit("shared/frontend", "^TestTerraformCallers$"), Dies: `GET /v1/locks/l : 200`,
	},
	{
		Name: "state-permission-late", Also: "",
		Rule: "what a caller may do is asked before anything is told of the lock (package service, ExecuteHeld)",
		Edits: []Edit{
			{"shared/frontend/service/held.go", `if err := s.permission(ctx).admitRequest(ctx, q); err != nil {`, `if err := s.permission(ctx).admitRequest(ctx, q); err != nil && q.Token != 0 {`},
		},
		By: unit("shared/frontend", "^TestEveryDoorRefusesTheSame$"), Dies: `putstate by`,
	},
	{
		Name: "state-clients-collide", Also: "",
		Rule: "two lock IDs have two clients (package terraform, clientOf)",
		Edits: []Edit{
			{"shared/frontend/terraform/terraform.go", `	if len(id) <= maxPlain && !strings`, `	id = id[:min(len(id), maxPlain)]
	if !strings`},
		},
		By: unit("shared/frontend/terraform", "^TestClients$"), Dies: `have the client`,
	},
	{
		Name: "state-refused-in-doubt", Also: "",
		Rule: "a write of a state that may have been executed is told as refused only where that holds for all attempts (package httpapi, settles)",
		Edits: []Edit{
			{"shared/frontend/httpapi/operation.go", `q == nil && !o.recorded || `, `q == nil || `},
		},
		By: unit("shared/frontend", "^TestForwardKeepsItsDoubt$"), Dies: `told \S+, want UNKNOWN`,
	},
	{
		Name: "state-forwarded-as-post", Also: "",
		Rule: "the primary gets a request about a state with the method that it came with (package httpapi, ask)",
		Edits: []Edit{
			{"shared/frontend/httpapi/forward.go", `cmp.Or(o.method, http.MethodPost)`, `http.MethodPost`},
		},
		By: unit("shared/frontend", "^TestTerraform$"), Dies: `LOCK /v1/terraform`,
	},
}
