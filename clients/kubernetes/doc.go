// SPDX-License-Identifier: Apache-2.0

// Package kubernetes elects leaders with client-go's package leaderelection over Holdfast. A Lock implements
// resourcelock.Interface, so a program that elects over a Lease of Kubernetes changes one field:
//
//	lock, err := kubernetes.New(client, "billing/controller", identity, kubernetes.Options{})
//	config := leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) {
//				ctx, grant := lock.Leading(ctx)
//				work(ctx, grant.Token())
//			},
//			…
//
// It is for programs that run in several clusters of Kubernetes, or in none. docs/kubernetes.md has a whole program, and
// what to choose for the durations.
//
// # What is stored where
//
// The leader holds the Holdfast lock of the given name. The lease of that grant lasts for LeaseDuration. The
// LeaderElectionRecord is the grant's metadata. Update renews the lease, which writes nothing to a disk; the record is
// written again only where more than its RenewTime has changed. Get computes the RenewTime from the lease.
//
// # Who decides
//
// In client-go each candidate watches the record, and decides by its own clock when the leader's time is over. Here the
// service decides: nobody gets the lock before the lease of its holder has ended at the service or was released, and each
// grant has a higher fencing token. When the lock is free, Get says so, and a candidate tries to acquire it at once.
//
// # Why a leader stops before its lease ends
//
// Let an elector's last successful renewal be sent at S and return at R. The service counts the lease from some moment
// after S, so it ends after S + LeaseDuration. The elector waits for RetryPeriod, tries for RenewDeadline, and gives up
// at R + RetryPeriod + RenewDeadline at the latest. client-go checks only that RenewDeadline is less than LeaseDuration.
// If R is long after S, or RetryPeriod is long, that moment may be after the end of the lease.
//
// So Create and Update succeed only while the lease, counted from S on the client's clock less a margin for drift, still
// lasts for RetryPeriod + RenewDeadline. An answer that comes later is not believed: the lease is renewed again. A
// release (ReleaseOnCancel) ends with the lease, too, else it would delay OnStoppedLeading by another RenewDeadline.
//
// That holds while the process runs. After a pause of the process or a sleep of its machine, client-go's timers are late.
// The context of Leading ends by a clock that runs in sleep, as soon as the process runs again. What the process has sent
// before only a fencing token can stop: grant.Append writes a protected file under the token, and the packages below
// clientlib/fencing compare it elsewhere.
//
// # One leadership, one token
//
// When the grant of a leader is lost, to an operator for example, the elector does not know it, and tries to renew for
// up to RenewDeadline. In that time Create and Update return a conflict, even if the lock is free: a new grant would have another token
// than the leader has handed to its work. The lock can be acquired again when the elector has stopped leading.
package kubernetes
