// SPDX-License-Identifier: Apache-2.0

// Package frontend says what all front ends have in common, and its tests hold them to it over a
// whole server. Front ends are how clients reach a server: session (the client library), grpcapi
// (gRPC), httpapi (HTTP and JSON), ws (WebSocket) and text (lines). They translate and nothing else, over
// one serving.Backend, which decides what is allowed and executed; service is what they share.
//
// Every server runs every front end. A replica answers reads from its own table, with their age,
// and gRPC writes with SECONDARY_MODE; its HTTP front end forwards writes to the primary.
//
// # Calls without IDs
//
// A server that receives a call without client_id and request_id makes them, before it decides or
// forwards, and returns them with protected = false. It also cleans up after such a call: when it
// ends before its answer, no one can ever ask for that answer, so the acquire is cancelled, and
// released if it was granted meanwhile.
//
// A call that brought IDs leaves its place in the queue when it ends. Its client may retry over
// another connection, perhaps before this one is known to be broken: to cancel or release then would
// take a lock from a client that was just answered that it holds it. Such a place lives by its
// client's open calls and keep-alives; a client that gives up sends a Cancel.
//
// # Sessions
//
// A session is of one client, over one connection, within one term. Operations are submitted without
// waiting for them, and their answers are sent as they come, many in one message. Nothing is bound to
// the connection: what a client holds or waits for lives by its keep-alives, over any connection or
// call.
//
// # Watches
//
// A watch is served from the hub of its server, so by every server that is fed. It goes on over
// changes of role where the log does. Where events are missing it goes on with a reset that has the
// reason, and never with one to an earlier state than was sent. It ends, with a message that has the
// reason, when its server's term does, when a replica is not fed for the storage timeout, or when
// its client reads too slowly. Over HTTP it is a stream of server-sent events, see httpapi/sse.go.
//
// # Forwarding
//
// What any primary would refuse, whatever its table, is refused here. The rest is forwarded, if it
// came from a client and not from another server, so it makes one hop. A forward that certainly did
// nothing is tried again for a short while. One that may have been executed is tried a few times
// more, with the same IDs, if that makes it a repeat; without repeat protection (a made client ID has
// none but for grants) the answer is UNKNOWN. A call that the end of this server's own term left
// unknown is such an attempt.
package frontend
