// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// watchInterval is the time between two reads of a watched object. A policy is read less often, because its report needs all
// pods that it selects.
const (
	watchInterval       = time.Second
	policyWatchInterval = 5 * time.Second
)

// clearScreen clears a terminal.
const clearScreen = "\x1b[H\x1b[2J"

// runWatch shows the object until it has finished, is deleted, or the user interrupts.
func (o *options) runWatch(cmd *cobra.Command, l *live, workloads []workload) error {
	if len(workloads) != 1 || workloads[0].name == "" || o.format != output.FormatTable {
		return errors.New("--watch requires one object as TYPE/NAME and table output")
	}
	of := workloads[0]
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	view := &watchView{w: w, stderr: cmd.ErrOrStderr(), terminal: output.IsTerminal(w)}
	ticker := time.NewTicker(of.kind.interval())
	defer ticker.Stop()
	for {
		r, err := l.gather(ctx, workloads)
		o.program.Progress.Clear()
		switch {
		case apierrors.IsNotFound(err) && view.shown != "":
			_, err := fmt.Fprintf(w, "%s/%s was deleted\n", of.kind, safetext.Escape(of.name))
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case view.shown == "" && isFinal(err):
			return err
		case err != nil:
			view.failed(err)
		default:
			if err := view.show(r); err != nil {
				return err
			}
			if of.kind.isFinished(r) {
				return o.failOn.Judge(r.worst())
			}
		}
		if err := wait(ctx, ticker); err != nil {
			return err
		}
		l.source = l.Refresh(l.source, o.program.Now())
	}
}

// isFinal reports whether a retry of the first read is useless.
func isFinal(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// interval is the time between two reads of a watched object of the kind.
func (k kind) interval() time.Duration {
	if k == kindPolicy || k == kindClusterPolicy {
		return policyWatchInterval
	}
	return watchInterval
}

// isFinished reports whether the watched object has finished. Only pods and Jobs finish.
func (k kind) isFinished(r *result) bool { return (k == kindPod || k == kindJob) && r.isFinished() }

func wait(ctx context.Context, ticker *time.Ticker) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ticker.C:
		return nil
	}
}

// isFinished reports whether the Jobs or pods have finished. A Job completes as soon as the phase of its pod is written, while
// the sidecar is still ending.
func (r *result) isFinished() bool {
	if len(r.Jobs) > 0 {
		return !slices.ContainsFunc(r.Jobs, func(j jobReport) bool { return !j.isFinished() }) &&
			!slices.ContainsFunc(r.Pods, func(p explain.Report) bool { return p.Stage == plan.StageTerminating && len(p.Attempts) > 0 })
	}
	return !slices.ContainsFunc(r.Pods, func(p explain.Report) bool {
		return p.Stage != plan.StageTerminated && (p.Stage != plan.StageIgnored || p.Reason != v1alpha1.ReasonPodFinished)
	})
}

// watchView shows one result after another. A terminal is cleared before each result.
type watchView struct {
	w, stderr io.Writer
	terminal  bool
	shown     string
	// failure is the error shown since the last result, or empty.
	failure string
}

// ages are the parts of a report that change with time alone.
var ages = regexp.MustCompile(`\b([0-9]+[smhdy])+\b *`)

// failed shows why there is no result. It shows the same error once.
func (v *watchView) failed(err error) {
	if err.Error() == v.failure {
		return
	}
	v.failure = err.Error()
	_, _ = fmt.Fprintf(v.stderr, "error: %s; retrying\n", safetext.EscapeLines(v.failure))
}

func (v *watchView) show(r *result) error {
	v.failure = ""
	var text strings.Builder
	format := output.Format(output.FormatTable)
	if v.terminal {
		if _, err := io.WriteString(v.w, clearScreen); err != nil {
			return err
		}
		v.shown = "terminal"
		return r.write(v.w, format)
	}
	if err := r.write(&text, format); err != nil {
		return err
	}
	content := strings.Join(strings.Fields(ages.ReplaceAllString(text.String(), "")), " ")
	if content == v.shown {
		return nil
	}
	if v.shown != "" {
		_, _ = fmt.Fprintln(v.w, "---")
	}
	v.shown = content
	_, err := io.WriteString(v.w, text.String())
	return err
}
