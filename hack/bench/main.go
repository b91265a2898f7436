// SPDX-License-Identifier: Apache-2.0

// Command bench measures how soon sidecars are terminated after a pod's main containers, and at what cost. It compares this
// operator, OpenKruise's SidecarTerminator, and a process that watches pods and makes the same writes at once. It runs its own API
// server and etcd on the loopback interface, and no kubelet. docs/performance.md says what is measured.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// settings are the flags.
type settings struct {
	runs       int
	pods       int
	steadyPods int
	rates      []int
	modes      []string
	contenders []string
	version    string
	output     string
	replace    bool
	largePods  int
	largeRuns  int

	parts        []string
	axes         []string
	scaleRuns    int
	scalePods    int
	unrelated    []int
	candidates   []int
	policies     []int
	coldStart    int
	handoverPods int

	completionJobs int
	completionRuns int
	reversalJobs   int
	largeCrowd     int
}

// Limits of the flags.
const (
	maxPods     = 5000
	maxRuns     = 1000
	maxRate     = 1000
	maxCrowd    = 100000
	maxPolicies = 20000
)

// Values of the flags.
var (
	modeNames = []string{string(v1alpha1.ModeCRR), string(v1alpha1.ModePodPhase), string(v1alpha1.ModeImage)}
	ownParts  = []string{partLatency, partLargeBurst, partGrowth, partColdStart, partHandover}
	partNames = append(slices.Clone(ownParts), partLarge, partCompletion, partReversals)
	axisNames = []string{string(AxisUnrelated), string(AxisCandidates), string(AxisPolicies)}
)

func contenderNames() []string {
	names := make([]string, len(contenders))
	for i, contender := range contenders {
		names[i] = string(contender)
	}
	return names
}

// warmUpPods is how many pods complete before anything is measured.
const warmUpPods = 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:           "bench",
		Short:         "Measure how soon sidecars are terminated, and at what cost",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return s.run(command.Context())
		},
	}
	command.AddCommand(newReportCommand(), newFloorCommand())
	command.Flags().AddFlagSet(newFlags(&s))
	return command
}

// newFlags makes the flags that fill the settings.
func newFlags(s *settings) *pflag.FlagSet {
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.IntVar(&s.runs, "runs", 5, "runs of each scenario with each contender, in turn")
	flags.IntVar(&s.pods, "pods", 500, "main containers in a burst and in a backlog; 0 omits both")
	flags.IntVar(&s.steadyPods, "steady-pods", 500, "main containers that end at a steady rate")
	flags.IntSliceVar(&s.rates, "rates", []int{50, 100}, "steady rates, in main containers that end per second")
	flags.StringSliceVar(&s.modes, "modes", modeNames, "modes")
	flags.StringSliceVar(&s.contenders, "contenders", contenderNames(), "contenders to measure")
	flags.StringSliceVar(&s.parts, "parts", ownParts, fmt.Sprintf("parts to measure, of %v; %s and %s need the local cluster (make cluster-up cluster-deploy)", partNames, partCompletion, partReversals))
	flags.StringSliceVar(&s.axes, "axes", axisNames, "what grows in the part growth")
	flags.IntVar(&s.scaleRuns, "scale-runs", 3, "runs of the parts growth, cold-start and handover; OpenKruise runs growth once")
	flags.IntVar(&s.scalePods, "scale-pods", 500, "main containers in a burst of the part growth")
	flags.IntSliceVar(&s.unrelated, "unrelated", []int{0, 10000, 50000}, "numbers of unrelated pods")
	flags.IntSliceVar(&s.candidates, "candidates", []int{1000, 10000, 50000}, "numbers of unfinished Job-type pods whose main containers keep running")
	flags.IntSliceVar(&s.policies, "policies", []int{1, 100, 1000, 10000}, "numbers of policies")
	flags.IntVar(&s.coldStart, "cold-start-candidates", 20000, "unfinished Job-type pods that a new process finds")
	flags.IntVar(&s.handoverPods, "handover-pods", 600, fmt.Sprintf("main containers that end, %d a second, during a handover", handoverRate))
	flags.IntVar(&s.largeCrowd, "large-cluster", maxLargeCrowd, fmt.Sprintf("unfinished Job-type pods in the part large, among as many finished ones; one namespace for %d and one policy for %d", podsPerSpace, podsPerPolicy))
	flags.StringVar(&s.version, "kubernetes-version", os.Getenv("K8S_VERSION"), "version of the API server")
	flags.StringVar(&s.output, "output", filepath.Join(".cluster", "bench.json"), "file for the results, as JSON")
	flags.BoolVar(&s.replace, "replace", false, "discard the results in the file; by default only what is measured again is replaced")
	flags.IntVar(&s.largePods, "large-pods", maxPods, "main containers in the part large-burst")
	flags.IntVar(&s.completionJobs, "completion-jobs", 5, "Jobs at once in the part completion")
	flags.IntVar(&s.completionRuns, "completion-runs", 20, "runs of the part completion: each contender in turn")
	flags.IntVar(&s.reversalJobs, "reversal-jobs", 1000, fmt.Sprintf("Jobs in the part reversals, %d at once", reversalJobsAtOnce))
	flags.IntVar(&s.largeRuns, "large-runs", 5, "runs of the part large-burst; kruise runs it once")
	return flags
}

func (s *settings) check() error {
	for _, list := range []struct {
		flag         string
		given, known []string
	}{
		{"modes", s.modes, modeNames}, {"contenders", s.contenders, contenderNames()}, {"parts", s.parts, partNames}, {"axes", s.axes, axisNames},
	} {
		for _, name := range list.given {
			if !slices.Contains(list.known, name) {
				return fmt.Errorf("--%s has %q; it may have %q", list.flag, name, list.known)
			}
		}
	}
	for _, list := range []struct {
		flag        string
		given       []int
		least, most int
	}{
		{"runs", []int{s.runs}, 1, maxRuns}, {"large-runs", []int{s.largeRuns}, 1, maxRuns}, {"scale-runs", []int{s.scaleRuns}, 1, maxRuns},
		{"pods", []int{s.pods}, 0, maxPods}, {"steady-pods", []int{s.steadyPods}, 1, maxPods}, {"large-pods", []int{s.largePods}, 1, maxPods},
		{"scale-pods", []int{s.scalePods}, 1, maxPods}, {"handover-pods", []int{s.handoverPods}, 2 * handoverBefore, maxPods},
		{"rates", s.rates, 1, maxRate}, {"unrelated", s.unrelated, 0, maxCrowd}, {"candidates", s.candidates, 0, maxCrowd},
		{"completion-jobs", []int{s.completionJobs}, 1, reversalJobsAtOnce}, {"completion-runs", []int{s.completionRuns}, 1, maxRuns},
		{"large-cluster", []int{s.largeCrowd}, 2 * podsPerSpace, maxLargeCrowd},
		{"reversal-jobs", []int{s.reversalJobs}, 1, maxPods},
		{"policies", s.policies, 1, maxPolicies}, {"cold-start-candidates", []int{s.coldStart}, coldFinished, maxCrowd},
	} {
		for _, count := range list.given {
			if count < list.least || count > list.most {
				return fmt.Errorf("--%s has %d; it may have %d to %d", list.flag, count, list.least, list.most)
			}
		}
	}
	return nil
}

// scenarios are the scenarios of the part latency.
func (s *settings) scenarios() []Scenario {
	var all []Scenario
	for _, name := range s.modes {
		mode := v1alpha1.Mode(name)
		if s.pods > 0 {
			all = append(all, Scenario{Mode: mode, Pods: s.pods}, Scenario{Mode: mode, Pods: s.pods, Backlog: true})
		}
		for _, rate := range s.rates {
			all = append(all, Scenario{Mode: mode, Pods: s.steadyPods, Rate: rate})
		}
	}
	return all
}

// run builds what is missing and measures each requested part on an API server of its own. It saves results as they come.
func (s *settings) run(ctx context.Context) error {
	directories, err := layout.Find()
	if err != nil {
		return err
	}
	x := &session{settings: s, reporter: progress.Stderr(), directories: directories}
	if x.cluster, err = cluster.New(directories, x.reporter); err != nil {
		return err
	}
	versions := toolchain.FromEnvironment()
	versions.Kubernetes = s.version
	if versions, err = versions.Parse(); err != nil {
		return err
	}
	if x.binaries, err = x.cluster.Builder().EnsureEnvtest(ctx, versions.Kubernetes); err != nil {
		return err
	}
	kruiseBinaries, err := x.cluster.Builder().Ensure(ctx, versions.KruiseTool())
	if err != nil {
		return err
	}
	x.programs.kruiseManager = filepath.Join(kruiseBinaries, "kruise-manager")
	operator, build, err := x.buildOperator(ctx, directories.Repository)
	if err != nil {
		return err
	}
	x.programs.operator = operator
	x.output = s.output
	if !filepath.IsAbs(x.output) {
		x.output = filepath.Join(directories.Repository, s.output)
	}
	x.report = &Report{
		Started: time.Now().UTC(), Machine: machine(), Kubernetes: versions.Kubernetes, Kruise: versions.KruiseTool().Version(), Operator: build,
	}
	if x.report, err = x.report.continued(x.output, s.replace); err != nil {
		return err
	}
	err = x.measure(ctx)
	return errors.Join(err, x.report.print(os.Stdout))
}

// measureContender starts the contender and runs all scenarios that it supports.
func measureContender(ctx context.Context, e *environment, p programs, contender Contender, scenarios []Scenario, report *Report) (err error) {
	r, err := p.start(ctx, e, contender)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	// The first requests meet a webhook and watches that have just started.
	if _, err := bench(ctx, e, r, contender, Scenario{Mode: v1alpha1.ModeCRR, Pods: warmUpPods}); err != nil {
		return fmt.Errorf("warm up with %s: %w", contender, err)
	}
	for _, scenario := range scenarios {
		if !contender.can(scenario) {
			continue
		}
		run, err := bench(ctx, e, r, contender, scenario)
		if err != nil {
			err = fmt.Errorf("%s, %s: %w", contender, scenario, err)
			if r.measured != nil {
				err = fmt.Errorf("%w; %s", err, tail(r.measured.log))
			}
			return err
		}
		report.add(contender, scenario, run)
	}
	return nil
}

// buildOperator builds the operator like a release. It returns the file, and what identifies the build.
func (x *session) buildOperator(ctx context.Context, repository string) (file, digest string, err error) {
	file = filepath.Join(repository, "bin", "manager")
	err = x.reporter.Step("build the operator", func() error {
		compiled, err := x.cluster.Compile(ctx, ".")
		if err != nil {
			return err
		}
		digest = fmt.Sprintf("sha256:%x", sha256.Sum256(compiled))
		return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file), os.WriteFile(file, compiled, 0o755))
	})
	return file, digest, err
}
