// SPDX-License-Identifier: Apache-2.0

// Package ws is the WebSocket front end: the operations of HTTP's POST, its watches, and notices
// of what a holder loses, all on one connection, for web pages and any other client of
// WebSocket. It is a handler for /v1/ws of the server for HTTP, whose time-outs bound the handshake.
//
// # Messages
//
// A message is one JSON object, as text. What a client sends has an "op" and an "id", a
// number or a string of its own choice; the answer has the same id, in front of what HTTP
// answers. Operations run in parallel and are answered as they are ready: a client that
// needs an order waits for the answer.
//
//	-> {"id":1,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"c","request_id":1}
//	<- {"id":1,"status":"OK","lock":"a","token":17,…}
//
// The operations are those of POST /v1/NAME, with the same fields. An append has its
// parameters as fields, and its bytes as text in "data" or in "data_base64". Four more
// concern the connection:
//
//	hello    {"client_id":"c","losses_after_lsn":17}: which client this is. The client ID
//	         counts where an operation has a request_id and no client_id, and in
//	         keep-alives; from now on the client gets its losses, and before that those that
//	         are still known after an LSN, such as the oldest token that it believes to hold.
//	         What is lost during a second hello may be sent twice. IDs that servers make,
//	         which begin with "~", are refused.
//	watch    {"lock":"a"} or {"prefix":"p"} or neither, {"after":LSN,"kinds":["grant"],
//	         "bookmark":"5s"}: GET /v1/watch. Its id is the watch's.
//	unwatch  {"watch":ID}: nothing of that watch comes after the answer.
//	ping     {}: an empty answer, for pages: they cannot send WebSocket's own pings.
//
// What is no answer has no id:
//
//	{"watch":ID,"event":{…}}  the data of a server-sent event. One of kind "end" is the last.
//	{"loss":{…}}              a grant of the client's has ended, otherwise than by its own
//	                          release; all of them, if it names no lock
//	{"ask":{…}}               an operator asks the client to release
//	{"missed":true}           losses may have been missed here: a keep-alive with "held" knows
//
// # What a connection does not do
//
// Nothing is bound to it, and it renews nothing: that a connection is open proves that a
// browser or a kernel lives, not that the page or the program makes progress. A holder sends
// keepalives, one for all it holds and waits for, as over HTTP.
//
// A client that reconnects, here or at another server, sends a hello, repeats its request under
// the same client_id and request_id, and has the same grant, receipt or place in the queue; it
// watches on after the last "lsn" that it saw. Only acquires without IDs end with the
// connection, for they could not be repeated.
//
// # Bounds
//
// What has no room is refused with STORAGE_UNAVAILABLE: operations without an answer, acquires
// that wait, the bytes of the messages of both, and watches of one connection. A message that
// is not an append is at most as long as over HTTP, as are an append's parameters.
// A client that leaves too much unread is cut, but one message may have any size: a client
// that reads gets it, such as the reset of a watch. A client that is cut gets a message that
// is being sent whole, and then a close frame with the reason; so does one that sends a
// message that is too large (1009) or not text (1003). One that reads nothing for long, or
// answers no ping, is cut without a close frame. Limits has all bounds.
//
// # Origins
//
// A browser sends the site of the page that connects. A page of another site is refused, as it
// is over HTTP, unless one of the patterns allows it. A request without an origin is not from a
// browser, and is admitted.
//
// # Goroutines
//
// The goroutine of the handshake reads and owns the subscriptions of losses and the watches. A
// second one writes, and a third sends pings. Each pending operation and each watch has one of
// its own, which ends with the connection. They all put their messages into the outbox, which
// never waits for the client; watches wait for room in it, which delays nothing but watches.
package ws
