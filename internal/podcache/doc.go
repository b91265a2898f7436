// SPDX-License-Identifier: Apache-2.0

// Package podcache holds the operator's cache of unfinished pods and keeps it small: the API server selects the pods, Trim drops the
// fields that nobody reads, a Pod holds the others encoded, and Stores reads them.
package podcache
