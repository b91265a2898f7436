// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the policy kinds of sidecartermination.dev/v1alpha1, the reasons and conditions that the
// operator reports, and the environment variables, labels and annotations that it reads and writes.
//
// It holds declarations and the defaults of single fields. What follows from a policy for a pod is decided in
// internal/resolve and internal/plan, never here.
//
// +kubebuilder:object:generate=true
// +groupName=sidecartermination.dev
package v1alpha1
