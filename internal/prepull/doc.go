// SPDX-License-Identifier: Apache-2.0

// Package prepull decides which ImagePullJobs download a policy's quick-exit images to nodes in advance, and reports
// their progress. It is pure: the same input gives the same bytes. Packages pulljob and controllers read and write the
// jobs.
//
// A job is never changed. OpenKruise does not pass a change of pull secrets on to nodes that it has asked before (syncNodeImages in
// imagepulljob_controller.go skips a node that knows the job). So a job's name is a hash of its content, and other content is
// another job.
package prepull
