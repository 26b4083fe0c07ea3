// SPDX-License-Identifier: Apache-2.0

package wire

// ClusterKey is the gRPC metadata under which a call says for which cluster it is meant.
const ClusterKey = "holdfast-cluster"
