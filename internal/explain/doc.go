// SPDX-License-Identifier: Apache-2.0

// Package explain says, for people, what the operator makes of a pod: which containers are mains and which sidecars and
// by whose word, how the sidecars will be ended, what is being waited for, what was done, and what would go wrong. It
// asks internal/resolve and internal/plan, as the operator does, and never decides on its own; what it adds are findings
// about declarations that cannot work out and, in Lint, about containers that nobody has declared.
//
// The package reads nothing but its arguments. Reading is the business of internal/observe and of the command line.
package explain
