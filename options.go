// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/controllers"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// The values of flags that turn a feature on or off.
const (
	enabled  = "Enabled"
	disabled = "Disabled"
)

// lastResort is the further value of --pod-phase.
const lastResort = string(plan.PodPhaseLastResort)

// The values of --quick-exit-image-digests and --env-images.
const (
	optional = "Optional"
	required = "Required"
	trusted  = "Trusted"
	listed   = "Listed"
)

// options are the operator's flags.
type options struct {
	metricsAddress          string
	metricsAuthentication   string
	metricsCertDir          string
	probeAddress            string
	pprofAddress            string
	leaderElect             bool
	leaderElectionNamespace string
	quickExitImage          string
	quickExitPaths          []string
	allowedImages           []string
	imageDigests            string
	envImages               string
	envConvention           string
	defaultExitCodes        string
	crr                     string
	imageSwap               string
	podPhase                string
	maxGracePeriod          time.Duration
	prePull                 string
	prePullNamespace        string
	settlePeriod            time.Duration
	statusPeriod            time.Duration
	virtualNodes            nodeMarks
	daemonlessNodes         nodeMarks
	maxConcurrentReconciles int
	shutdownTimeout         time.Duration
	zap                     zap.Options
}

// nodeMarks are flags that add marks of one kind of node.
type nodeMarks struct {
	kind           string // as the flags are named
	labels, taints []string
}

func defaultOptions() *options {
	return &options{
		virtualNodes:            nodeMarks{kind: "virtual"},
		daemonlessNodes:         nodeMarks{kind: "daemonless"},
		metricsAddress:          ":8443",
		metricsAuthentication:   enabled,
		probeAddress:            ":8081",
		leaderElect:             true,
		imageDigests:            optional,
		envImages:               trusted,
		envConvention:           enabled,
		defaultExitCodes:        string(v1alpha1.ExitCodesIgnore),
		crr:                     enabled,
		imageSwap:               enabled,
		podPhase:                enabled,
		maxGracePeriod:          time.Hour,
		prePull:                 enabled,
		settlePeriod:            1500 * time.Millisecond,
		statusPeriod:            5 * time.Second,
		maxConcurrentReconciles: 32,
		shutdownTimeout:         15 * time.Second,
	}
}

// bind adds all flags.
func (o *options) bind(flags *pflag.FlagSet) {
	o.bindDecisions(flags)
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress, "address that serves metrics; 0 turns them off")
	flags.StringVar(&o.metricsAuthentication, "metrics-authentication", o.metricsAuthentication,
		"Enabled: metrics are served by HTTPS, to those whom the cluster lets get /metrics; Disabled: in the clear, to all who reach them")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-dir", "",
		"directory with tls.crt and tls.key of the metrics, read again when they change; by default a certificate that nobody signed is made")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", o.probeAddress, "address that serves /healthz and /readyz")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", o.pprofAddress,
		"address that serves Go's profiles to whoever can reach it, so one of the loopback interface; empty for none")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, "have only one of several replicas act; the lease is released on shutdown")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; the pod's own by default")
	flags.DurationVar(&o.statusPeriod, "status-period", o.statusPeriod, "shortest time between two writes of one policy's status; longer for a policy with very many pods, 0 for none")
	flags.StringVar(&o.prePull, "pre-pull", o.prePull, "Enabled or Disabled: whether the operator may create OpenKruise's ImagePullJobs for policies with prePull")
	flags.StringVar(&o.prePullNamespace, "pre-pull-namespace", "", "namespace of the ImagePullJobs of cluster policies, where their pull secrets are; the operator's own by default")
	flags.IntVar(&o.maxConcurrentReconciles, "max-concurrent-reconciles", o.maxConcurrentReconciles, "how many pods are worked on at once")
	flags.DurationVar(&o.shutdownTimeout, "graceful-shutdown-timeout", o.shutdownTimeout, "how long running work may take on shutdown")

	goFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	o.zap.BindFlags(goFlags)
	flags.AddGoFlagSet(goFlags)
}

// bindDecisions adds the flags that bear on what is decided about a pod, which the command line has as well.
func (o *options) bindDecisions(flags *pflag.FlagSet) {
	flags.StringVar(&o.quickExitImage, "quick-exit-image", "", "image of mode Image where neither policy nor environment variable has one")
	flags.StringSliceVar(&o.quickExitPaths, "quick-exit-paths", nil,
		"what --quick-exit-image covers: absolute paths that it has the program at, default for those of the shipped image, * for every command; "+
			fmt.Sprintf("may be repeated, at most %d entries; the default paths when it is not given", quickexit.MaxEntries))
	flags.StringSliceVar(&o.allowedImages, "allowed-quick-exit-image", nil,
		"image that policies may name: a repository, a reference with tag or digest, or registry.example/team/* for all below; "+
			"may be repeated; without it policies may name any")
	flags.StringVar(&o.imageDigests, "quick-exit-image-digests", o.imageDigests,
		"Optional or Required: whether policies must name images by digest")
	flags.StringVar(&o.envImages, "env-images", o.envImages,
		"Trusted or Listed: whether an image of "+v1alpha1.EnvTerminateWithImage+" is the pod author's own or must be one that policies may name")
	flags.StringVar(&o.envConvention, "env-convention", o.envConvention,
		"Enabled or Disabled: whether "+v1alpha1.EnvTerminate+" and its kin count; disable it where OpenKruise's own SidecarTerminator runs")
	flags.StringVar(&o.defaultExitCodes, "default-exit-codes", o.defaultExitCodes,
		"Ignore or Respect: whether a sidecar's exit code counts where neither policy nor environment variable says")
	flags.StringVar(&o.crr, "crr", o.crr, "Enabled or Disabled: whether the operator may have OpenKruise end containers")
	flags.StringVar(&o.imageSwap, "image-swap", o.imageSwap, "Enabled or Disabled: whether the operator may swap containers' images")
	flags.StringVar(&o.podPhase, "pod-phase", o.podPhase,
		"Enabled, LastResort or Disabled: whether the operator may write pods' phases; LastResort: only where no image can be swapped or the mode is declared")
	flags.DurationVar(&o.maxGracePeriod, "pod-phase-max-grace-period", o.maxGracePeriod,
		"longest terminationGracePeriodSeconds of a pod whose phase is written: such a pod no longer counts for quotas while its sidecars run; "+
			"a policy with mode PodPhase is exempt")
	flags.DurationVar(&o.settlePeriod, "settle-period", o.settlePeriod, "how long a pod must have been unchanged before its phase is written")
	o.virtualNodes.bind(flags, "nodes without a kubelet")
	o.daemonlessNodes.bind(flags, "nodes that have a kubelet and do not run OpenKruise's daemon")
}

func (m *nodeMarks) bind(flags *pflag.FlagSet, nodes string) {
	flags.StringSliceVar(&m.labels, m.kind+"-node-label", nil, "further label, key or key=value, of "+nodes+"; may be repeated")
	flags.StringSliceVar(&m.taints, m.kind+"-node-taint", nil, "key of a further taint of "+nodes+"; may be repeated")
}

// controllerOptions checks the flags and returns what the reconcilers need of them. An error names the flag.
func (o *options) controllerOptions() (controllers.Options, error) {
	if err := o.check(); err != nil {
		return controllers.Options{}, err
	}
	marks := plan.DefaultNodeMarks()
	if err := errors.Join(o.virtualNodes.addTo(&marks.Virtual), o.daemonlessNodes.addTo(&marks.Daemonless)); err != nil {
		return controllers.Options{}, err
	}
	images, err := o.images()
	if err != nil {
		return controllers.Options{}, err
	}
	return controllers.Options{
		Resolve: resolve.Options{
			IgnoreEnv:      o.envConvention == disabled,
			ExitCodes:      v1alpha1.ExitCodes(o.defaultExitCodes),
			Image:          o.quickExitImage,
			QuickExitPaths: quickexit.CoverageOf(o.quickExitPaths...),
		},
		PodPhase:                plan.PodPhaseUse(o.podPhase),
		MaxGracePeriod:          o.maxGracePeriod,
		CRRDisabled:             o.crr == disabled,
		ImageDisabled:           o.imageSwap == disabled,
		Images:                  images,
		PrePullDisabled:         o.prePull == disabled,
		PrePullNamespace:        cmp.Or(o.prePullNamespace, ownNamespace(serviceAccountNamespace)),
		SettlePeriod:            o.settlePeriod,
		NodeMarks:               marks,
		StatusPeriod:            o.statusPeriod,
		MaxConcurrentReconciles: o.maxConcurrentReconciles,
		Clock:                   clock.RealClock{},
	}, nil
}

func (o *options) check() error {
	either := func(value string, allowed ...string) bool { return slices.Contains(allowed, value) }
	for _, flag := range []struct {
		name  string
		value any
		ok    bool
		must  string
	}{
		{"env-convention", o.envConvention, either(o.envConvention, enabled, disabled), "be Enabled or Disabled"},
		{"crr", o.crr, either(o.crr, enabled, disabled), "be Enabled or Disabled"},
		{"image-swap", o.imageSwap, either(o.imageSwap, enabled, disabled), "be Enabled or Disabled"},
		{"pod-phase", o.podPhase, either(o.podPhase, enabled, lastResort, disabled), "be Enabled, LastResort or Disabled"},
		{"pod-phase-max-grace-period", o.maxGracePeriod, o.maxGracePeriod > 0, "be longer than 0"},
		{"pre-pull", o.prePull, either(o.prePull, enabled, disabled), "be Enabled or Disabled"},
		{"pre-pull-namespace", o.prePullNamespace, o.prePullNamespace == "" || len(content.IsDNS1123Label(o.prePullNamespace)) == 0, "be the name of a namespace"},
		{"metrics-authentication", o.metricsAuthentication, either(o.metricsAuthentication, enabled, disabled), "be Enabled or Disabled"},
		{"quick-exit-image-digests", o.imageDigests, either(o.imageDigests, optional, required), "be Optional or Required"},
		{"env-images", o.envImages, either(o.envImages, trusted, listed), "be Trusted or Listed"},
		{"default-exit-codes", o.defaultExitCodes, either(o.defaultExitCodes, string(v1alpha1.ExitCodesIgnore), string(v1alpha1.ExitCodesRespect)), "be Ignore or Respect"},
		{"quick-exit-image", o.quickExitImage, o.quickExitImage == "" || resolve.IsImageReference(o.quickExitImage), "be an image reference of at most 512 characters such as registry.example/quick-exit:v1"},
		{"settle-period", o.settlePeriod, o.settlePeriod >= 0, "not be negative"},
		{"status-period", o.statusPeriod, o.statusPeriod >= 0, "not be negative"},
		{"graceful-shutdown-timeout", o.shutdownTimeout, o.shutdownTimeout >= 0, "not be negative"},
		{"max-concurrent-reconciles", o.maxConcurrentReconciles, o.maxConcurrentReconciles >= 1, "be at least 1"},
	} {
		if !flag.ok {
			return fmt.Errorf("--%s is %q; it must %s", flag.name, fmt.Sprint(flag.value), flag.must)
		}
	}
	if err := quickexit.ValidateEntries(o.quickExitPaths); err != nil {
		return fmt.Errorf("--quick-exit-paths: %w", err)
	}
	return nil
}

// images returns the images that policies may name. An error names the flag.
func (o *options) images() (imagelist.List, error) {
	list := imagelist.List{DigestRequired: o.imageDigests == required, EnvironmentListed: o.envImages == listed}
	for _, text := range o.allowedImages {
		entry, err := imagelist.ParseEntry(text)
		if err != nil {
			return imagelist.List{}, fmt.Errorf("--allowed-quick-exit-image: %w", err)
		}
		list.Entries = append(list.Entries, entry)
	}
	return list, nil
}

// addTo adds the marks. An error names the flag.
func (m *nodeMarks) addTo(marks *plan.Marks) error {
	for _, label := range m.labels {
		key, value, _ := strings.Cut(label, "=")
		if len(content.IsLabelKey(key)) > 0 || len(content.IsLabelValue(value)) > 0 {
			return fmt.Errorf("--%s-node-label is %q; it must be key or key=value of a label", m.kind, label)
		}
		marks.Labels = append(marks.Labels, plan.LabelMatch{Key: key, Value: value})
	}
	for _, taint := range m.taints {
		if len(content.IsLabelKey(taint)) > 0 {
			return fmt.Errorf("--%s-node-taint is %q; it must be the key of a taint", m.kind, taint)
		}
		marks.Taints = append(marks.Taints, taint)
	}
	return nil
}

// serviceAccountNamespace is where a pod finds its own namespace.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownNamespace returns the namespace that the operator runs in, or nothing outside of a cluster.
func ownNamespace(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}
