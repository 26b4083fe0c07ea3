// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"

	"github.com/holdfast-lock/holdfast/shared/access"
	"github.com/holdfast-lock/holdfast/shared/wire/pb"
)

// Bearer begins the text of an Authorization header, over HTTP and gRPC, before the credential (RFC 6750).
const Bearer = "Bearer "

// The beginnings of keys and tickets, and the most bytes that a credential has: those of package access, for clients.
const (
	KeyPrefix     = access.KeyPrefix
	TicketPrefix  = access.TicketPrefix
	MaxCredential = access.MaxCredential
)

// BearerOf returns the credential of an Authorization header, "" if there is none.
func BearerOf(header string) string {
	if len(header) > len(Bearer) && strings.EqualFold(header[:len(Bearer)], Bearer) {
		return strings.TrimSpace(header[len(Bearer):])
	}
	return ""
}

// LoginBody is the answer to login in JSON: the nonce and the challenge of the first call, or the ticket of the second.
type LoginBody struct {
	Status    string   `json:"status"`
	Message   string   `json:"message,omitempty"`
	Nonce     string   `json:"nonce,omitempty"`
	Challenge string   `json:"challenge,omitempty"`
	Ticket    string   `json:"ticket,omitempty"`
	Identity  string   `json:"identity,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	Expires   Moment   `json:"expires,omitempty"`
}

// LoginBodyOf converts the answer to login.
func LoginBodyOf(r *pb.LoginResponse) LoginBody {
	return LoginBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), Nonce: r.GetNonce(), Challenge: r.GetChallenge(),
		Ticket: r.GetTicket(), Identity: r.GetIdentity(), Groups: r.GetGroups(), Expires: Moment(r.GetExpiresUnixMs()),
	}
}

// WhoAmIBody is the answer to whoami in JSON.
type WhoAmIBody struct {
	Status   string   `json:"status"`
	Message  string   `json:"message,omitempty"`
	Identity string   `json:"identity"`
	Groups   []string `json:"groups,omitempty"`
	Via      string   `json:"via,omitempty"`
	Expires  Moment   `json:"expires,omitempty"`
	Operator bool     `json:"operator,omitempty"`
	Rules    uint64   `json:"rules"`
	// Allowed and Why answer a question, which has a verb.
	Allowed bool   `json:"allowed"`
	Why     string `json:"why,omitempty"`
	// Limits are those that quotas set.
	Limits []LimitBody `json:"limits,omitempty"`
}

// LimitBody is a limit of a quota.
type LimitBody struct {
	Name string `json:"name"`
	Most uint64 `json:"most"`
	// All callers share it below this prefix; "" = it is of the caller by itself.
	Prefix string `json:"prefix,omitempty"`
}

// WhoAmIBodyOf converts the answer to whoami.
func WhoAmIBodyOf(r *pb.WhoAmIResponse) WhoAmIBody {
	b := WhoAmIBody{
		Status: FromStatus(r.GetStatus()).String(), Message: r.GetMessage(), Identity: r.GetIdentity(), Groups: r.GetGroups(), Via: r.GetVia(),
		Expires: Moment(r.GetExpiresUnixMs()), Operator: r.GetOperator(), Rules: r.GetRules(), Allowed: r.GetAllowed(), Why: r.GetWhy(),
	}
	for _, x := range r.GetLimits() {
		b.Limits = append(b.Limits, LimitBody{Name: x.GetName(), Most: x.GetMost(), Prefix: x.GetPrefix()})
	}
	return b
}
