// SPDX-License-Identifier: Apache-2.0

// Package explain describes in words what the operator does with a pod. A report lists the role of each container and the
// policy that declares it, the modes by node type, the current decision, past attempts, and findings about what goes or
// may go wrong.
//
// The package asks internal/resolve and internal/plan, like the operator, and makes no decisions of its own. It adds two
// kinds of findings: declarations that cannot work, and, in Lint, containers without a declaration. It reads only its arguments.
package explain
