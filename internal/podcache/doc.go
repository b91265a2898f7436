// SPDX-License-Identifier: Apache-2.0

// Package podcache holds the operator's cache of unfinished pods and keeps it small: the API server selects the pods, TrimPod drops
// the fields that nobody reads, and Stores lists pods without copies.
package podcache
