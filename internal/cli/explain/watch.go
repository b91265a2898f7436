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

	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminal"
)

// watchInterval is how often a watched object is read. A policy is explained by all the pods that it selects, and read less
// often.
const (
	watchInterval       = time.Second
	policyWatchInterval = 5 * time.Second
)

// clearScreen has a terminal start over.
const clearScreen = "\x1b[H\x1b[2J"

// runWatch shows the object until it has finished, has gone, or the user has seen enough.
func (o *options) runWatch(cmd *cobra.Command, l *live, subjects []subject) error {
	if len(subjects) != 1 || subjects[0].name == "" || o.format != output.FormatTable {
		return errors.New("--watch shows one object, given as TYPE/NAME, as a table")
	}
	of := subjects[0]
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	view := &watchView{w: w, stderr: cmd.ErrOrStderr(), terminal: output.IsTerminal(w)}
	ticker := time.NewTicker(of.kind.interval())
	defer ticker.Stop()
	for {
		r, err := l.gather(ctx, subjects)
		switch {
		case apierrors.IsNotFound(err) && view.shown != "":
			_, err := fmt.Fprintf(w, "%s/%s has gone\n", of.kind, terminal.Escape(of.name))
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
			if of.kind.isOver(r) {
				return o.failOn.Judge(r.worst())
			}
		}
		if err := wait(ctx, ticker); err != nil {
			return err
		}
		l.look = l.Again(l.look, o.operator.Now())
	}
}

// isFinal reports whether trying again is of no use where nothing could be read yet.
func isFinal(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// interval is how often a watched object of the kind is read.
func (k kind) interval() time.Duration {
	if k == kindPolicy || k == kindClusterPolicy {
		return policyWatchInterval
	}
	return watchInterval
}

// isOver reports whether nothing more will happen to the object of the kind. Only pods and Jobs ever finish.
func (k kind) isOver(r *result) bool { return (k == kindPod || k == kindJob) && r.isOver() }

func wait(ctx context.Context, ticker *time.Ticker) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ticker.C:
		return nil
	}
}

// isOver reports whether nothing more will happen. A Job is complete as soon as the phase of its pod is written, and the sidecar
// that is being ended then still runs.
func (r *result) isOver() bool {
	if len(r.Jobs) > 0 {
		return !slices.ContainsFunc(r.Jobs, func(j jobLine) bool { return strings.HasPrefix(j.Status, "running") || j.Status == "suspended" }) &&
			!slices.ContainsFunc(r.Pods, func(p explain.Report) bool { return p.Stage == plan.StageTerminating && len(p.Attempts) > 0 })
	}
	return !slices.ContainsFunc(r.Pods, func(p explain.Report) bool {
		return p.Stage != plan.StageTerminated && (p.Stage != plan.StageIgnored || p.StageReason != "PodFinished")
	})
}

// watchView shows results one after the other: on a terminal in the same place, elsewhere one below the other.
type watchView struct {
	w, stderr io.Writer
	terminal  bool
	shown     string
	// failure is the error that was shown since the last result, or empty.
	failure string
}

// ages are the parts of a report that change by themselves.
var ages = regexp.MustCompile(`\b([0-9]+[smhdy])+\b *`)

// failed shows why there is no result this time, once for as long as it stays the same.
func (v *watchView) failed(err error) {
	if err.Error() == v.failure {
		return
	}
	v.failure = err.Error()
	_, _ = fmt.Fprintf(v.stderr, "error: %s; trying again\n", terminal.EscapeLines(v.failure))
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
	essence := strings.Join(strings.Fields(ages.ReplaceAllString(text.String(), "")), " ")
	if essence == v.shown {
		return nil
	}
	if v.shown != "" {
		_, _ = fmt.Fprintln(v.w, "---")
	}
	v.shown = essence
	_, err := io.WriteString(v.w, text.String())
	return err
}
