// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 declares the policy kinds of sidecartermination.dev/v1alpha1, the reasons and conditions that the
// operator reports, and the environment variables, labels and annotations that it reads and writes.
//
// It contains declarations only. Packages resolve and plan decide what a policy means for a pod.
//
// +kubebuilder:object:generate=true
// +groupName=sidecartermination.dev
package v1alpha1
