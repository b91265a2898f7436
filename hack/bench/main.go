// SPDX-License-Identifier: Apache-2.0

// Command bench measures how soon sidecars are terminated after a pod's main containers, and at what cost. docs/performance.md says
// what is measured.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// session is one run of the benchmark.
type session struct {
	parts, contenders     string
	runs, pods, largePods int

	layout  layout.Layout
	cluster *cluster.Cluster
	report  *report
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	s := &session{}
	flag.StringVar(&s.parts, "parts", "burst", "what to measure, separated by commas: burst, steady, large, and completion on the local cluster (make cluster-up cluster-deploy)")
	flag.StringVar(&s.contenders, "contenders", "", "contenders to measure, separated by commas; all if empty")
	flag.IntVar(&s.runs, "runs", 5, "runs of each contender")
	flag.IntVar(&s.pods, "pods", 500, "main containers that end in a burst or at a steady rate")
	flag.IntVar(&s.largePods, "large-pods", 150000, "unfinished pods in the part large")
	flag.Parse()
	if err := s.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// run measures the parts, and prints the results. It saves results as they come.
func (s *session) run(ctx context.Context) (err error) {
	if s.runs < 1 || s.pods < 1 || s.largePods < podsPerNamespace {
		return fmt.Errorf("a number is too low: --large-pods needs %d, the others 1", podsPerNamespace)
	}
	contenders := slices.Concat([]string{contenderBare, contenderKruise}, onKubelets)
	for _, contender := range strings.Split(s.contenders, ",") {
		if contender != "" && !slices.Contains(contenders, contender) {
			return fmt.Errorf("--contenders has %q, want some of %s", contender, strings.Join(contenders, ", "))
		}
	}
	if s.layout, err = layout.Find(); err != nil {
		return err
	}
	if s.cluster, err = cluster.New(s.layout); err != nil {
		return err
	}
	versions, err := cluster.FromEnvironment()
	if err != nil {
		return err
	}
	s.report = newReport()
	known := map[string]func(context.Context, cluster.Versions) error{"burst": s.bursts, "steady": s.steady, "large": s.large, "completion": s.completions}
	for _, part := range strings.Split(s.parts, ",") {
		measure := known[part]
		if measure == nil {
			return fmt.Errorf("--parts has %q, want burst, steady, large or completion", part)
		}
		if err := measure(ctx, versions); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", part, err), s.report.print(os.Stdout))
		}
	}
	return s.report.print(os.Stdout)
}

// startServer builds the API server and etcd, and starts them.
func (s *session) startServer(ctx context.Context, versions cluster.Versions) (*environment, error) {
	s.report.Setup += ", Kubernetes " + versions.Kubernetes
	binaries, err := s.cluster.Builder.EnsureEnvtest(ctx, versions.Kubernetes)
	if err != nil {
		return nil, err
	}
	return startServer(ctx, binaries, s.layout.Repository)
}

// inTurn measures the requested contenders in turn, so that other load on the machine affects all of them, and saves the results of each
// run.
func (s *session) inTurn(runs int, load string, contenders []string, measure func(contender string) error) error {
	for run := range runs {
		for _, contender := range contenders {
			if s.contenders != "" && !strings.Contains(","+s.contenders+",", ","+contender+",") {
				continue
			}
			err := progress.Step(fmt.Sprintf("%s, run %d of %d: %s", load, run+1, runs, contender), func() error {
				return errors.Join(measure(contender), s.report.save(s.layout.Path("bench.json")))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// figures are the values of one run by their names, which have the units.
type figures map[string]float64

// report is all results.
type report struct {
	// Setup is when and where the benchmark ran. Figures of a machine with a high load average before mean little.
	Setup string `json:"setup"`
	// Results are the values of all runs, by load, figure and contender.
	Results map[string][]float64 `json:"results"`
}

func newReport() *report {
	load, _ := os.ReadFile("/proc/loadavg")
	return &report{Results: map[string][]float64{}, Setup: fmt.Sprintf("%s, %d CPUs, %s, load average before %.4s",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), load)}
}

// add adds a run of a load with a contender.
func (r *report) add(load, contender string, run figures) {
	for name, value := range run {
		key := load + "; " + name + "; " + contender
		r.Results[key] = append(r.Results[key], value)
	}
}

// save writes the report as JSON.
func (r *report) save(file string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	return layout.WriteFile(file, append(content, '\n'))
}

// print writes a table of all figures.
func (r *report) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "%s\n\nLOAD\tFIGURE\tCONTENDER\tMEDIAN\tLEAST\tGREATEST\tRUNS\n", r.Setup)
	for _, key := range slices.Sorted(maps.Keys(r.Results)) {
		values := slices.Sorted(slices.Values(r.Results[key]))
		_, _ = fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f\t%d\n", strings.ReplaceAll(key, "; ", "\t"), percentile(values, 50), values[0], values[len(values)-1], len(values))
	}
	return table.Flush()
}

// percentile is the nearest-rank percentile of sorted values.
func percentile[T any](sorted []T, percent int) T {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
