// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-lock/holdfast/clientlib"
)

// record is what a leader publishes.
type record resourcelock.LeaderElectionRecord

// text returns the record as it stands in the metadata of a grant: JSON.
func (r record) text() string {
	b, err := json.Marshal(resourcelock.LeaderElectionRecord(r))
	if err != nil { // of a time, in a year with five digits
		return ""
	}
	return string(b)
}

// lasting returns the text of the record without what each renewal changes.
func (r record) lasting() string {
	r.RenewTime = metav1.Time{}
	return r.text()
}

// longest returns a record of a candidate than which none is longer.
func longest(identity string) record {
	at := metav1.NewTime(time.Unix(0, 0)) // all times have the same length
	return record{HolderIdentity: identity, LeaseDurationSeconds: math.MaxInt, LeaderTransitions: math.MaxInt, AcquireTime: at, RenewTime: at}
}

// recordOf returns the record of a lock that is held. Its holder is never the own identity where the grant is not the
// own one, of this very Lock: an elector that reads its own identity believes that it leads. Programs that are no electors may
// hold the lock, too, with any metadata.
func recordOf(info *clientlib.LockInfo, identity string, own bool) record {
	var r record
	if json.Unmarshal([]byte(info.Metadata), &r) != nil {
		r = record{}
	}
	if r.HolderIdentity == "" || r.HolderIdentity == identity && !own {
		r.HolderIdentity = fmt.Sprintf("%s (token %d)", info.Holder.Person(), info.Holder.Token)
	}
	if r.AcquireTime.IsZero() {
		r.AcquireTime = metav1.NewTime(info.Since)
	}
	r.RenewTime = metav1.NewTime(time.Now().Add(info.Remaining - info.TTL))
	r.LeaseDurationSeconds = int((info.TTL + time.Second - 1) / time.Second)
	return r
}

// refusal is an error of the service of Holdfast that an elector knows by its reason, too.
type refusal struct {
	*apierrors.StatusError
	cause error
}

// Error returns the text of the cause.
func (e *refusal) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *refusal) Unwrap() error { return e.cause }

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "holdfast", Resource: "locks"}
}

func notFound(name clientlib.LockName) error {
	return apierrors.NewNotFound(resource(), string(name))
}

func exists(name clientlib.LockName, cause error) error {
	return &refusal{apierrors.NewAlreadyExists(resource(), string(name)), cause}
}

func conflict(name clientlib.LockName, cause error) error {
	return &refusal{apierrors.NewConflict(resource(), string(name), cause), cause}
}
