// SPDX-License-Identifier: Apache-2.0

// Package prepull decides by which pull jobs a policy's quick-exit images get to nodes before they are needed, and says
// how that goes. It is pure: the same input gives the same bytes. Reading and writing the jobs is the business of
// internal/pulljob and controllers.
//
// A job is never changed. OpenKruise does not hand a change of pull secrets or of the sandbox's configuration on to nodes
// that it has asked before (syncNodeImages in imagepulljob_controller.go passes over a node that knows the job), so all
// that a job says goes into its name: another wish is another job.
package prepull
