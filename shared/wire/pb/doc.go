// SPDX-License-Identifier: Apache-2.0

// Package pb is generated from holdfast.proto and peer.proto by go generate in
// package wire.
package pb
