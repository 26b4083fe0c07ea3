// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/frontend/service"
	"github.com/holdfast-lock/holdfast/shared/locktable"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// table has the operations in the order of docs/http.md.
var table = [...]Operation{
	// Requests to the lock table.
	{
		Name: "acquire", Method: "Acquire", Message: (*pb.AcquireRequest)(nil), Route: "POST /v1/acquire", Line: Line{"LOCK", 2, 4},
		Op: locktable.OpAcquire, Server: Primary, Verb: access.Acquire, Repeat: Once, Forwarded: true,
	},
	{
		Name: "release", Method: "Release", Message: (*pb.ReleaseRequest)(nil), Route: "POST /v1/release", Line: Line{"UNLOCK", 2, 3},
		Op: locktable.OpRelease, Server: Primary, Verb: access.Keep, Repeat: Once, Forwarded: true,
	},
	{
		Name: "append", Method: "FileAppend", Message: (*pb.FileAppendRequest)(nil), Route: "POST /v1/append",
		Op: locktable.OpAppend, Server: Primary, Verb: access.Append, Repeat: Once, Forwarded: true, Data: true,
	},
	{
		Name: "downgrade", Method: "Downgrade", Message: (*pb.DowngradeRequest)(nil), Route: "POST /v1/downgrade",
		Op: locktable.OpDowngrade, Server: Primary, Verb: access.Keep, Repeat: Once, Forwarded: true,
	},
	{
		Name: "extend", Method: "Extend", Message: (*pb.ExtendRequest)(nil), Route: "POST /v1/extend",
		Op: locktable.OpExtend, Server: Primary, Verb: access.Acquire, Repeat: Once, Forwarded: true,
	},
	{
		Name: "cancel", Method: "Cancel", Message: (*pb.CancelRequest)(nil), Route: "POST /v1/cancel",
		Op: locktable.OpCancel, Server: Primary, Verb: access.Keep, Repeat: Once, Forwarded: true,
	},
	{
		Name: "metadata", Method: "SetMetadata", Message: (*pb.SetMetadataRequest)(nil), Route: "POST /v1/metadata",
		Op: locktable.OpMetadata, Server: Primary, Verb: access.Acquire, Repeat: Once, Forwarded: true,
	},
	{
		Name: "break", Method: "BreakLock", Message: (*pb.BreakLockRequest)(nil), Route: "POST /v1/break",
		Op: locktable.OpBreak, Server: Primary, Verb: access.Break, Repeat: Once, Forwarded: true,
	},
	{
		Name: "bind", Method: "BindFile", Message: (*pb.BindFileRequest)(nil), Route: "POST /v1/bind",
		Op: locktable.OpBind, Server: Primary, Verb: access.Append, Repeat: Once, Forwarded: true,
	},
	{
		Name: "unbind", Method: "UnbindFile", Message: (*pb.UnbindFileRequest)(nil), Route: "POST /v1/unbind",
		Op: locktable.OpUnbind, Server: Primary, Verb: access.Break, Repeat: Once, Forwarded: true,
	},
	{
		Name: "seal", Method: "SealFile", Message: (*pb.SealFileRequest)(nil), Route: "POST /v1/seal",
		Op: locktable.OpSeal, Server: Primary, Verb: access.Append, Repeat: Once, Forwarded: true,
	},
	{
		Name: "rotate", Method: "RotateFile", Message: (*pb.RotateFileRequest)(nil), Route: "POST /v1/rotate",
		Op: locktable.OpRotate, Server: Primary, Verb: access.Break, Repeat: Once, Forwarded: true,
	},
	{
		Name: "open", Method: "OpenClient", Message: (*pb.OpenClientRequest)(nil), Route: "POST /v1/open",
		Op: locktable.OpOpenClient, Server: Primary, Verb: access.Keep, Repeat: Once, Forwarded: true,
	},
	{
		Name: "forget", Method: "ForgetClient", Message: (*pb.ForgetClientRequest)(nil),
		Op: locktable.OpForget, Server: Primary, Verb: access.Keep, Repeat: Harmless,
	},

	// Leases, questions that the primary is asked, and the cluster.
	{
		Name: "renew", Method: "RenewLease", Message: (*pb.RenewLeaseRequest)(nil), Route: "POST /v1/renew", Line: Line{"RENEW", 2, 3},
		Serve: serve((*service.Service).Renew), Server: Primary, Verb: access.Keep, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "keepalive", Method: "KeepAlive", Message: (*pb.KeepAliveRequest)(nil), Route: "POST /v1/keepalive",
		Serve: serve((*service.Service).KeepAlive), Server: Primary, Verb: access.Keep, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "verify", Method: "Verify", Message: (*pb.VerifyRequest)(nil), Route: "POST /v1/verify", Line: Line{"TOKEN", 2, 2},
		Serve: serve((*service.Service).Verify), Server: Primary, Verb: access.Read, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "prove", Method: "Prove", Message: (*pb.ProveRequest)(nil), Route: "POST /v1/prove",
		Serve: serve((*service.Service).Prove), Server: Primary, Verb: access.Keep, Repeat: Harmless, Forwarded: true,
	},
	{ // a replica answers what cannot change any more
		Name: "outcome", Method: "Outcome", Message: (*pb.OutcomeRequest)(nil), Route: "POST /v1/outcome",
		Serve: serve((*service.Service).Outcome), Server: Any, Verb: access.Keep, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "handover", Method: "Handover", Message: (*pb.HandoverRequest)(nil), Route: "POST /v1/handover",
		Serve: serve((*service.Service).Handover), Server: Primary, Verb: access.Admin, Repeat: Again, Forwarded: true,
	},
	{ // it names the level, so a repeat finds it done
		Name: "upgrade", Method: "Upgrade", Message: (*pb.UpgradeRequest)(nil), Route: "POST /v1/upgrade",
		Serve: serve((*service.Service).Upgrade), Server: Primary, Verb: access.Admin, Repeat: Harmless, Forwarded: true,
	},
	{ // the server that is asked takes over, and no primary can help
		Name: "takeover", Method: "Takeover", Message: (*pb.TakeoverRequest)(nil), Route: "POST /v1/takeover",
		Serve: serve((*service.Service).Takeover), Server: Any, Verb: access.Admin, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "members", Method: "ChangeMembers", Message: (*pb.ChangeMembersRequest)(nil), Route: "POST /v1/members",
		Op: locktable.OpMembers, Server: Primary, Verb: access.Admin, Repeat: Once, Forwarded: true,
	},

	// Reads.
	{
		Name: "locks", Method: "ListLocks", Message: (*pb.ListLocksRequest)(nil), Route: "GET /v1/locks",
		Serve: serve((*service.Service).ListLocks), Server: Any, Verb: access.Read, Repeat: Harmless,
	},
	{
		Name: "lock", Method: "GetLock", Message: (*pb.GetLockRequest)(nil), Route: "GET /v1/locks/{name...}", Line: Line{"OWN", 1, 2},
		Serve: serve((*service.Service).GetLock), Server: Any, Verb: access.Read, Repeat: Harmless,
	},
	{ // composed of lock and history, by a primary if one can be reached
		Name: "why", Route: "GET /v1/why/{name...}", Server: Any, Verb: access.Read, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "files", Method: "ListFiles", Message: (*pb.ListFilesRequest)(nil), Route: "GET /v1/files",
		Serve: serve((*service.Service).ListFiles), Server: Any, Verb: access.Read, Repeat: Harmless,
	},
	{
		Name: "file", Method: "ReadFile", Message: (*pb.ReadFileRequest)(nil), Route: "GET /v1/files/{name...}",
		Serve: serve((*service.Service).ReadFile), Server: Primary, Verb: access.Read, Repeat: Harmless, Forwarded: true,
	},
	{ // over HTTP it is a parameter of file
		Name: "follow", Method: "FollowFile", Message: (*pb.FollowFileRequest)(nil),
		Server: Primary, Verb: access.Read, Repeat: Harmless,
	},
	{
		Name: "blame", Method: "BlameFile", Message: (*pb.BlameFileRequest)(nil), Route: "GET /v1/blame/{name...}",
		Serve: serve((*service.Service).BlameFile), Server: Any, Verb: access.Read, Repeat: Harmless,
	},
	{
		Name: "history", Method: "History", Message: (*pb.HistoryRequest)(nil), Route: "GET /v1/history",
		Serve: serve((*service.Service).History), Server: Any, Verb: access.Read, Repeat: Harmless,
	},
	{
		Name: "watch", Method: "Watch", Message: (*pb.WatchRequest)(nil), Route: "GET /v1/watch",
		Server: Any, Verb: access.Read, Repeat: Harmless,
	},
	// The states of Terraform and OpenTofu, package terraform. Their requests are those that the verbs are of.
	{
		Name: "lockstate", Route: "LOCK /v1/terraform/{name...}", Server: Primary, Verb: access.Acquire, Repeat: Once, Forwarded: true,
	},
	{
		Name: "unlockstate", Route: "UNLOCK /v1/terraform/{name...}", Server: Primary, Verb: access.Keep, Repeat: Once, Forwarded: true,
	},
	{
		Name: "state", Route: "GET /v1/terraform/{name...}", Server: Primary, Verb: access.Read, Repeat: Harmless, Forwarded: true,
	},
	{
		Name: "putstate", Route: "POST /v1/terraform/{name...}", Server: Primary, Verb: access.Append, Repeat: Once, Forwarded: true, Data: true,
	},
	{
		Name: "deletestate", Route: "DELETE /v1/terraform/{name...}", Server: Primary, Verb: access.Append, Repeat: Once, Forwarded: true,
	},
	{
		Name: "status", Method: "Status", Message: (*pb.StatusRequest)(nil), Route: "GET /v1/status",
		Serve: serve((*service.Service).Status), Server: Any, Verb: access.Open, Repeat: Harmless, AnyCluster: true,
	},
	{
		Name: "whoami", Method: "WhoAmI", Message: (*pb.WhoAmIRequest)(nil), Route: "GET /v1/whoami",
		Serve: serve((*service.Service).WhoAmI), Server: Any, Verb: access.Open, Repeat: Harmless,
	},
	{Name: "keys", Route: "GET /v1/keys", Server: Any, Verb: access.Open, Repeat: Harmless},
	{
		Name: "login", Method: "Login", Message: (*pb.LoginRequest)(nil), Route: "POST /v1/login",
		Serve: serve((*service.Service).Login), Server: Any, Verb: access.Open, Repeat: Again, Forwarded: true,
	},
	{Name: "healthz", Route: "GET /healthz", Server: Any, Verb: access.Open, Repeat: Harmless, AnyCluster: true},
	{Name: "livez", Route: "GET /livez", Server: Any, Verb: access.Open, Repeat: Harmless, AnyCluster: true},
	{Name: "readyz", Route: "GET /readyz", Server: Any, Verb: access.Open, Repeat: Harmless, AnyCluster: true},
	{Name: "metrics", Route: "GET /metrics", Server: Any, Verb: access.Keep, Repeat: Harmless, AnyCluster: true},
	{Name: "lockmetrics", Route: "GET /metrics/locks", Server: Any, Verb: access.Read, Repeat: Harmless},
}
