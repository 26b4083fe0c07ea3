// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// names are the metrics, without their prefix, with what they mean and their labels.
var names = [...]struct {
	name, help string
	labels     []string
}{
	{"build_info", "A constant 1, with the version of the server and of Go.", []string{"version", "goversion"}},
	{"server_role", "1 for the role that this server has, 0 for the others.", []string{"role"}},
	{"warnings", "How many warnings holdfast status shows for this server.", nil},
	{"epoch", "The highest epoch that this server knows, the number of the term.", nil},
	{"feature_level", "The feature level of the cluster, as far as this server knows, and the highest that this server knows itself.", []string{"of"}},
	{"lsn", "The LSN of the last record that is committed, as far as this server knows.", nil},
	{"reigns_total", "Terms of this server that ended, by how they ended.", []string{"end"}},
	{"takeover_seconds", "How long it took from the claim of a term until it served.", nil},
	{"quorum", "1 if this server reaches a majority of the servers.", nil},
	{"peer_reachable", "1 if this server reaches the other one.", []string{"peer"}},
	{"peer_able", "1 if the other server could take over, as it says; 0 for the primary.", []string{"peer"}},
	{"peer_heard_age_seconds", "How long ago the other server was heard.", []string{"peer"}},
	{"replica_lag_records", "How many records the replica lacks, as it said last. Only at the primary.", []string{"peer"}},
	{"replica_unwaited", "1 if answers should wait for the replica and do not, so that its reads may be old. Only at the primary.", []string{"peer"}},
	{"volume_sync_seconds", "How long it took to write a batch to the log durably.", nil},
	{"volume_check_seconds", "How long it took to check behind it that no later term has begun.", nil},
	{"volume_check_age_seconds", "How long ago the volume took a write of this server, or passed a check.", nil},
	{"volume_full", "1 if the log cannot grow for want of space. Only at the primary.", nil},
	{"volume_free_bytes", "The free space of the volume, 0 if it is not known.", nil},
	{"canary_lag_seconds", "How old the volume is that reads past the caches show to this server.", nil},
	{"canary_stale_reads_total", "Reads that showed an older volume than the primary had announced, through the caches (plain) and past them (direct), which must not be.", []string{"kind"}},
	{"log_bytes", "How much log follows the last checkpoint. Only at the primary.", nil},
	{"log_limit_bytes", "How much log causes the next checkpoint. Only at the primary.", nil},
	{"checkpoint_age_seconds", "How long ago this term wrote a checkpoint, or began. Only at the primary.", nil},
	{"requests_total", "Calls that the primary of this server answered, repeats included, by operation and status.", []string{"op", "status"}},
	{"request_seconds", "How long they took in the server, without the time in the queue of a lock.", []string{"op"}},
	{"batch_requests", "How many calls one commit answered.", nil},
	{"queue_calls", "How many calls wait for the core loop. Only at the primary.", nil},
	{"core_busy_seconds_total", "How long the core loop was busy and did not wait for the volume.", nil},
	{"core_progress_age_seconds", "How long ago the core loop went round with no commit under way. Only at the primary.", nil},
	{"grants", "How many grants are live. Only at the primary.", nil},
	{"waiters", "How many requests wait in the queues of locks. Only at the primary.", nil},
	{"wait_seconds", "How long those waited that were granted a lock from its queue, in this term.", nil},
	{"hold_seconds", "How long grants lasted that have ended.", nil},
	{"oldest_grant_age_seconds", "The age of the oldest grant, 0 for none. Only at the primary.", nil},
	{"leases_expired_total", "Grants that ended because nobody renewed them, or after the longest time that they may be held.", nil},
	{"breaks_total", "Grants that an operator took from their holders.", nil},
	{"clients", "How many clients are remembered. Only at the primary.", nil},
	{"receipts", "How many outcomes of requests are remembered. Only at the primary.", nil},
	{"append_bytes_total", "How much was appended to protected files, repeats not counted.", nil},
	{"file_pending_bytes", "How much of that is not known to be durable in the files yet. Only at the primary.", nil},
	{"files", "How many protected files there are, by state. Only at the primary.", []string{"state"}},
	{"connections", "How many connections of clients are open, by front end.", []string{"front_end"}},
	{"sessions", "How many sessions of the client library are open.", nil},
	{"watches", "How many watches are served.", nil},
	{"watch_resets_total", "Watches that began with the state instead of going on with events, by why.", []string{"why"}},
	{"auth_total", "Credentials that were shown, by method and result.", []string{"method", "result"}},
	{"denied_total", "Calls that the access rules did not permit, by verb.", []string{"verb"}},
	{"limited_total", "Connections and calls that a limit refused, by limit.", []string{"limit"}},
	{"audit_dropped_total", "Events that the audit could not keep.", nil},
	{"traces_total", "Traced calls, by whether their trace was taken, or dropped because many waited for the collector.", []string{"result"}},
	{"trace_spans_total", "Spans that were exported to the collector, or that it did not take (failed).", []string{"result"}},
	{"config_pending_restart", "How many changed settings wait for a restart of this server.", nil},
	{"access_version", "The version of the access rules in force, 0 for none.", nil},
	{"certificate_expiry_timestamp_seconds", "When the certificate ends that clients are shown, by where it is from.", []string{"use"}},
}

// describe returns the descriptions of all metrics, by name.
func describe() map[string]*prometheus.Desc {
	d := map[string]*prometheus.Desc{}
	for _, m := range names {
		d[m.name] = prometheus.NewDesc("holdfast_"+m.name, m.help, m.labels, nil)
	}
	return d
}
