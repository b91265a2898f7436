//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/internal/settings"
)

// Limits of a dump.
const (
	dumpTimeout    = 30 * time.Second
	dumpedPods     = 20
	dumpedBytes    = 30_000
	dumpedLogLines = 80
)

// dump logs the state of the test's namespace, and the end of the operator's log.
func (t *Test) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	var out strings.Builder
	fmt.Fprintf(&out, "State of namespace %s\n", t.Namespace)
	t.Recorder.Look(func(seen Seen) {
		pods := seen.AllPods()
		fmt.Fprintf(&out, "%d pods: %s\n", len(pods), describePods(pods[:min(len(pods), dumpedPods)]))
	})
	own := "--namespace=" + t.Namespace
	for _, arguments := range [][]string{
		{"get", own, "jobs,pods", "--output=wide"},
		{"get", own, "events", "--sort-by=.lastTimestamp"},
		{"get", own, "sidecarterminationpolicies", "--output=yaml"},
		{"get", own, "containerrecreaterequests.apps.kruise.io", "--output=yaml"},
		{"get", own, "pods", "--output=yaml"},
		{"logs", "--namespace=" + OperatorNamespace, "deployment/" + settings.DeploymentName, fmt.Sprintf("--tail=%d", dumpedLogLines)},
	} {
		output, err := t.TryKubectl(ctx, arguments...)
		fmt.Fprintf(&out, "kubectl %s (%v)\n%s\n", strings.Join(arguments, " "), err, output[:min(len(output), dumpedBytes)])
	}
	t.Log(out.String())
}
