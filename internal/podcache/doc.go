// SPDX-License-Identifier: Apache-2.0

// Package podcache holds the operator's cache of unfinished pods and keeps it small: the API server selects the pods, a Pod holds the
// fields that somebody reads as they were sent, and Stores reads them.
package podcache
