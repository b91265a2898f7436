// SPDX-License-Identifier: Apache-2.0

// Command bench measures how long after the end of a pod's main containers the end of its sidecars is asked for, and what
// that costs: this operator, OpenKruise's SidecarTerminator, and bare clients that make the same writes at once. It runs an
// API server and etcd of its own on the loopback interface; no kubelet takes part. docs/performance.md says what is measured.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
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
	subjects   []string
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

	description []Scenario
}

const (
	// maxPods bounds every load.
	maxPods = 5000
	// warmUpPods are ended before anything is measured.
	warmUpPods = 20
)

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
		Short:         "Measure how fast and at which cost sidecars are ended",
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
	command.AddCommand(newReportCommand())
	command.Flags().AddFlagSet(newFlags(&s))
	return command
}

// newFlags makes the flags that fill the settings.
func newFlags(s *settings) *pflag.FlagSet {
	var names []string
	for _, subject := range subjects {
		names = append(names, string(subject))
	}
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.IntVar(&s.runs, "runs", 5, "how often each scenario is run with each subject, one after the other in turn")
	flags.IntVar(&s.pods, "pods", 500, "how many main containers end at once, or have ended before; 0 leaves both out")
	flags.IntVar(&s.steadyPods, "steady-pods", 500, "how many main containers end at a steady rate")
	flags.IntSliceVar(&s.rates, "rates", []int{50, 100}, "steady rates, in main containers that end per second")
	flags.StringSliceVar(&s.modes, "modes", []string{"CRR", "PodPhase", "Image"}, "modes")
	flags.StringSliceVar(&s.subjects, "subjects", names, "whom to measure")
	flags.StringSliceVar(&s.parts, "parts", partNames(), "what to measure")
	flags.StringSliceVar(&s.axes, "axes", axisNames(), "what is to grow in the part growth")
	flags.IntVar(&s.scaleRuns, "scale-runs", 3, "how often each of the parts growth, cold-start and handover is run; growth with OpenKruise once")
	flags.IntVar(&s.scalePods, "scale-pods", 500, "how many main containers end at once in the part growth")
	flags.IntSliceVar(&s.unrelated, "unrelated", []int{0, 10000, 50000}, "how many pods that are nobody's business are around")
	flags.IntSliceVar(&s.candidates, "candidates", []int{1000, 10000, 50000}, "how many live pods of which the main container runs on are around")
	flags.IntSliceVar(&s.policies, "policies", []int{1, 100, 1000, 10000}, "how many policies there are")
	flags.IntVar(&s.coldStart, "cold-start-candidates", 20000, "how many live pods a new process finds")
	flags.IntVar(&s.handoverPods, "handover-pods", 600, fmt.Sprintf("how many main containers end, %d a second, while the leader goes", handoverRate))
	flags.StringVar(&s.version, "kubernetes-version", os.Getenv("K8S_VERSION"), "version of the API server")
	flags.StringVar(&s.output, "output", filepath.Join(".cluster", "bench.json"), "file for the results, as JSON")
	flags.BoolVar(&s.replace, "replace", false, "start the file for the results anew; else what is measured replaces what it has of the same, and the rest stays")
	flags.IntVar(&s.largePods, "large-pods", maxPods, "how many main containers end at once in the part large-burst")
	flags.IntVar(&s.largeRuns, "large-runs", 5, "how often the part large-burst is run; with OpenKruise and its default flags once")
	return flags
}

func (s *settings) check() error {
	if s.runs < 1 || s.pods < 0 || s.pods > maxPods || s.steadyPods < 1 || s.steadyPods > maxPods {
		return fmt.Errorf("--runs must be at least 1, and --pods and --steady-pods at most %d", maxPods)
	}
	for _, mode := range s.modes {
		if !slices.Contains([]string{"CRR", "PodPhase", "Image"}, mode) {
			return fmt.Errorf("--modes has %q; it may have CRR, PodPhase and Image", mode)
		}
		if s.pods > 0 {
			s.description = append(s.description,
				Scenario{Mode: v1alpha1.Mode(mode), Pods: s.pods}, Scenario{Mode: v1alpha1.Mode(mode), Pods: s.pods, Backlog: true})
		}
		for _, rate := range s.rates {
			if rate < 1 || rate > 1000 {
				return fmt.Errorf("--rates has %d; it may have 1 to 1000", rate)
			}
			s.description = append(s.description, Scenario{Mode: v1alpha1.Mode(mode), Pods: s.steadyPods, Rate: rate})
		}
	}
	for _, subject := range s.subjects {
		if !slices.Contains(subjects, Subject(subject)) {
			return fmt.Errorf("--subjects has %q, which is none", subject)
		}
	}
	return s.checkScale()
}

// run builds what is missing and measures each part that is asked for, with an API server of its own each. What has been
// measured is kept, whatever happens later.
func (s *settings) run(ctx context.Context) error {
	directories, err := layout.Find()
	if err != nil {
		return err
	}
	x := &session{settings: s, reporter: progress.Stderr(), crds: filepath.Join(directories.Repository, "config", "crd", "bases")}
	if x.cluster, err = cluster.New(directories, x.reporter); err != nil {
		return err
	}
	version, err := toolchain.ParseKubernetes(s.version)
	if err != nil {
		return err
	}
	if x.binaries, err = x.cluster.Builder().EnsureEnvtest(ctx, version); err != nil {
		return err
	}
	kruiseBinaries, err := x.cluster.Builder().Ensure(ctx, toolchain.Kruise())
	if err != nil {
		return err
	}
	x.programs.kruiseManager = filepath.Join(kruiseBinaries, "kruise-manager")
	if x.programs.operator, err = buildOperator(ctx, directories.Repository, x.reporter); err != nil {
		return err
	}
	x.output = s.output
	if !filepath.IsAbs(x.output) {
		x.output = filepath.Join(directories.Repository, s.output)
	}
	x.report = &Report{Started: time.Now().UTC(), Machine: machine(), Kubernetes: version, Kruise: toolchain.Kruise().Version()}
	if x.report.Operator, err = digest(x.programs.operator); err != nil {
		return err
	}
	if x.report, err = x.report.continued(x.output, s.replace); err != nil {
		return err
	}
	err = x.measure(ctx)
	return errors.Join(err, x.report.print(os.Stdout))
}

// measureSubject runs all scenarios that the subject can with a new process of it.
func measureSubject(ctx context.Context, e *environment, p programs, subject Subject, scenarios []Scenario, report *Report) (err error) {
	r, err := p.start(ctx, e, subject)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	// The first requests of all meet a webhook and watches that have only just begun.
	if _, err := bench(ctx, e, r, subject, Scenario{Mode: v1alpha1.ModeCRR, Pods: warmUpPods}); err != nil {
		return fmt.Errorf("warm up with %s: %w", subject, err)
	}
	for _, scenario := range scenarios {
		if !subject.can(scenario) {
			continue
		}
		run, err := bench(ctx, e, r, subject, scenario)
		if err != nil {
			err = fmt.Errorf("%s, %s: %w", subject, scenario, err)
			if r.measured != nil {
				err = fmt.Errorf("%w; %s", err, tail(r.measured.log))
			}
			return err
		}
		report.add(subject, scenario, run)
	}
	return nil
}

// buildOperator builds the operator as it is released, but for the commit that it would know of itself, so that the same code
// makes the same file.
func buildOperator(ctx context.Context, repository string, reporter *progress.Reporter) (string, error) {
	file := filepath.Join(repository, "bin", "manager")
	return file, reporter.Step("build the operator", func() error {
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", file, ".")
		command.Dir = repository
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
		}
		return nil
	})
}
