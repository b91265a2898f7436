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
)

// watchInterval is how often a watched object is read.
const watchInterval = time.Second

// clearScreen has a terminal start over.
const clearScreen = "\x1b[H\x1b[2J"

// runWatch shows the pod or Job until it has finished, has gone, or the user has seen enough.
func (o *options) runWatch(cmd *cobra.Command, l *live, subjects []subject) error {
	if len(subjects) != 1 || subjects[0].name == "" || subjects[0].kind != kindPod && subjects[0].kind != kindJob || o.format != output.FormatTable {
		return errors.New("--watch shows one pod or one Job, as a table")
	}
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	view := &watchView{w: w, terminal: output.IsTerminal(w)}
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		r, err := l.gather(ctx, subjects)
		switch {
		case apierrors.IsNotFound(err) && view.shown != "":
			_, err := fmt.Fprintf(w, "%s/%s has gone\n", subjects[0].kind, subjects[0].name)
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
		if err := view.show(r); err != nil {
			return err
		}
		if r.isOver() {
			return o.failOn.Judge(r.worst())
		}
		if err := wait(ctx, ticker); err != nil {
			return err
		}
		l.look = l.Again(l.look, o.operator.Now())
	}
}

func wait(ctx context.Context, ticker *time.Ticker) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ticker.C:
		return nil
	}
}

// isOver reports whether nothing more will happen.
func (r *result) isOver() bool {
	if len(r.Jobs) > 0 {
		return !slices.ContainsFunc(r.Jobs, func(j jobLine) bool { return strings.HasPrefix(j.Status, "running") || j.Status == "suspended" })
	}
	return !slices.ContainsFunc(r.Pods, func(p explain.Report) bool {
		return p.Stage != plan.StageTerminated && (p.Stage != plan.StageIgnored || p.StageReason != "PodFinished")
	})
}

// watchView shows results one after the other: on a terminal in the same place, elsewhere one below the other.
type watchView struct {
	w        io.Writer
	terminal bool
	shown    string
}

// ages are the parts of a report that change by themselves.
var ages = regexp.MustCompile(`\b([0-9]+[smhdy])+\b *`)

func (v *watchView) show(r *result) error {
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
