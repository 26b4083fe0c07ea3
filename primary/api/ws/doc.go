// SPDX-License-Identifier: Apache-2.0

// Package ws is the WebSocket front end: the operations of HTTP's POST, its watches, and
// word of what a holder loses, all on one connection, for web pages and for whatever else
// speaks WebSocket. It is off until it is given an address, and serves /v1/ws there.
//
// # Messages
//
// A message is one JSON object, as text. What a client sends has an "op" and an "id", a
// number or a string of its own choice; the answer has the same id, in front of what HTTP
// answers. Operations run beside each other and are answered as they are ready: who
// needs an order waits for the answer.
//
//	-> {"id":1,"op":"acquire","lock":"a","ttl":"30s","wait":"forever","client_id":"c","request_id":1}
//	<- {"id":1,"status":"OK","lock":"a","token":17,…}
//
// The operations are those of POST /v1/NAME, with the same fields. An append has its
// parameters as fields, and its bytes as text in "data" or in "data_base64". Four more
// concern the connection:
//
//	hello    {"client_id":"c","losses_after_lsn":17}: who this is. The client ID stands
//	         in where an operation has a request_id and no client_id, and in keep-alives;
//	         from now on the client is told its losses, and before that those that are
//	         still known after an LSN, such as the oldest token that it believes to hold.
//	         What is lost while it says so again may be told twice. IDs that servers make,
//	         which begin with "~", are refused.
//	watch    {"lock":"a"} or {"prefix":"p"} or neither, {"after":LSN,"kinds":["grant"],
//	         "bookmark":"5s"}: GET /v1/watch. Its id is the watch's.
//	unwatch  {"watch":ID}: nothing of that watch comes behind the answer.
//	ping     {}: an answer that says nothing, for pages: they cannot send WebSocket's own.
//
// What nobody asked for has no id:
//
//	{"watch":ID,"event":{…}}  the data of a server-sent event. One of kind "end" is the last.
//	{"loss":{…}}              a grant of the client's has ended, otherwise than by its own
//	                          release; all of them, if it names no lock
//	{"ask":{…}}               an operator asks the client to let go
//	{"missed":true}           losses may have been missed here: a keep-alive with "held" knows
//
// # What a connection does not do
//
// Nothing is bound to it, and it renews nothing: that a connection is open proves that a
// browser or a kernel lives, not that the page or the program gets on. Whoever holds a lock sends
// a keepalive, one for all it holds and waits for, as over HTTP.
//
// A client that comes back, here or at another server, says hello, asks again under the same client_id and
// request_id, and has the same grant, receipt or place in the queue; it watches on after
// the last "lsn" that it saw. Only acquires without IDs end with the connection, for
// nobody could ask for them again.
//
// # Bounds
//
// What has no room is refused with STORAGE_UNAVAILABLE and goes on holding up nobody:
// operations without an answer, acquires that wait, the bytes of the messages of both, and
// watches of one connection. What is no append is as short as over HTTP, as are an append's
// parameters.
// A client that leaves too much unread is cut, but one message may be as large as it is: who
// reads gets it, such as the reset of a watch. Who is cut gets what is under way whole, and
// then a close frame with the reason; so does one that sends a message that is too
// large (1009) or no text (1003). One that takes nothing for long, or answers no ping, is
// cut without a word, for it would not hear it. Limits has them all.
//
// # Origins
//
// A browser says of which site the page is that connects. That of another site is refused,
// as HTTP does with what such a page sends, unless one of the patterns allows it.
// What says nothing of an origin is no browser, and is let in.
//
// # Who does what
//
// The goroutine of the handshake reads and owns what was asked for: whom the connection listens
// for, and its watches. A second one writes, and a third sends pings. Each operation
// and each watch under way has one of its own, which ends with the connection. They all
// hand what they have to tell to the outbox, which never waits for the client; watches
// wait for room in it, which holds up nothing but watches.
package ws
