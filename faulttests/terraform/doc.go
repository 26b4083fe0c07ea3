// SPDX-License-Identifier: Apache-2.0

// Package terraform tests the states of Terraform and OpenTofu over real servers that are killed: with a client that asks as OpenTofu's
// "http" backend does, and with tofu itself where that is installed.
//
//	go test ./faulttests/terraform
package terraform
