// SPDX-License-Identifier: Apache-2.0

// Package podmodel is a model of what Kubernetes, OpenKruise and the operator may do to a pod: an ordered list of named rules
// for single writes. The simulation of package plan checks its own writes against these rules, and the replay those of
// recorded clusters. A write that no rule explains is a divergence. The cause is an error in the model or in the component.
//
// The package decides nothing in the operator, and shares no code with the packages that do.
package podmodel
