// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/controllers"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// The values of flags that turn a feature on or off.
const (
	enabled  = "Enabled"
	disabled = "Disabled"
)

// options are the operator's flags.
type options struct {
	metricsAddress          string
	probeAddress            string
	leaderElect             bool
	leaderElectionNamespace string
	quickExitImage          string
	envConvention           string
	defaultExitCodes        string
	crr                     string
	imageSwap               string
	podPhase                string
	settlePeriod            time.Duration
	statusPeriod            time.Duration
	virtualNodeLabels       []string
	virtualNodeTaints       []string
	maxConcurrentReconciles int
	shutdownTimeout         time.Duration
	zap                     zap.Options
}

func defaultOptions() *options {
	return &options{
		metricsAddress:          ":8080",
		probeAddress:            ":8081",
		leaderElect:             true,
		envConvention:           enabled,
		defaultExitCodes:        string(v1alpha1.ExitCodesIgnore),
		crr:                     enabled,
		imageSwap:               enabled,
		podPhase:                enabled,
		settlePeriod:            1500 * time.Millisecond,
		statusPeriod:            5 * time.Second,
		maxConcurrentReconciles: 16,
		shutdownTimeout:         15 * time.Second,
	}
}

// bind adds all flags.
func (o *options) bind(flags *pflag.FlagSet) {
	o.bindDecisions(flags)
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress, "address that serves metrics; 0 turns them off")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", o.probeAddress, "address that serves /healthz and /readyz")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, "have only one of several replicas act; the lease is released on shutdown")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; the pod's own by default")
	flags.DurationVar(&o.statusPeriod, "status-period", o.statusPeriod, "shortest time between two writes of one policy's status")
	flags.IntVar(&o.maxConcurrentReconciles, "max-concurrent-reconciles", o.maxConcurrentReconciles, "how many pods are worked on at once")
	flags.DurationVar(&o.shutdownTimeout, "graceful-shutdown-timeout", o.shutdownTimeout, "how long running work may take on shutdown")

	goFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	o.zap.BindFlags(goFlags)
	flags.AddGoFlagSet(goFlags)
}

// bindDecisions adds the flags that bear on what is decided about a pod, which the command line has as well.
func (o *options) bindDecisions(flags *pflag.FlagSet) {
	flags.StringVar(&o.quickExitImage, "quick-exit-image", "", "image of mode Image where neither policy nor environment variable has one")
	flags.StringVar(&o.envConvention, "env-convention", o.envConvention,
		"Enabled or Disabled: whether "+v1alpha1.EnvTerminate+" and its kin count; disable it where OpenKruise's own SidecarTerminator runs")
	flags.StringVar(&o.defaultExitCodes, "default-exit-codes", o.defaultExitCodes,
		"Ignore or Respect: whether a sidecar's exit code counts where neither policy nor environment variable says")
	flags.StringVar(&o.crr, "crr", o.crr, "Enabled or Disabled: whether the operator may look for OpenKruise and use it")
	flags.StringVar(&o.imageSwap, "image-swap", o.imageSwap, "Enabled or Disabled: whether the operator may swap containers' images")
	flags.StringVar(&o.podPhase, "pod-phase", o.podPhase, "Enabled or Disabled: whether the operator may write pods' phases")
	flags.DurationVar(&o.settlePeriod, "settle-period", o.settlePeriod, "how long a pod must have been unchanged before its phase is written")
	flags.StringSliceVar(&o.virtualNodeLabels, "virtual-node-label", nil,
		"further label, key or key=value, of nodes without a kubelet; may be repeated")
	flags.StringSliceVar(&o.virtualNodeTaints, "virtual-node-taint", nil, "key of a further taint of nodes without a kubelet; may be repeated")
}

// controllerOptions checks the flags and returns what the reconcilers need of them. An error names the flag.
func (o *options) controllerOptions() (controllers.Options, error) {
	if err := o.check(); err != nil {
		return controllers.Options{}, err
	}
	virtual, err := o.virtualNodes()
	if err != nil {
		return controllers.Options{}, err
	}
	return controllers.Options{
		Resolve: resolve.Options{
			IgnoreEnv: o.envConvention == disabled,
			ExitCodes: v1alpha1.ExitCodes(o.defaultExitCodes),
			Image:     o.quickExitImage,
		},
		PodPhase:                o.podPhase == enabled,
		CRRDisabled:             o.crr == disabled,
		ImageDisabled:           o.imageSwap == disabled,
		SettlePeriod:            o.settlePeriod,
		VirtualNodes:            virtual,
		StatusPeriod:            o.statusPeriod,
		MaxConcurrentReconciles: o.maxConcurrentReconciles,
		Clock:                   clock.RealClock{},
	}, nil
}

// imageReference is what the API accepts as a policy's image.
var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

func (o *options) check() error {
	either := func(value, a, b string) bool { return value == a || value == b }
	for _, flag := range []struct {
		name  string
		value any
		ok    bool
		must  string
	}{
		{"env-convention", o.envConvention, either(o.envConvention, enabled, disabled), "be Enabled or Disabled"},
		{"crr", o.crr, either(o.crr, enabled, disabled), "be Enabled or Disabled"},
		{"image-swap", o.imageSwap, either(o.imageSwap, enabled, disabled), "be Enabled or Disabled"},
		{"pod-phase", o.podPhase, either(o.podPhase, enabled, disabled), "be Enabled or Disabled"},
		{"default-exit-codes", o.defaultExitCodes, either(o.defaultExitCodes, string(v1alpha1.ExitCodesIgnore), string(v1alpha1.ExitCodesRespect)), "be Ignore or Respect"},
		{"quick-exit-image", o.quickExitImage, o.quickExitImage == "" || imageReference.MatchString(o.quickExitImage), "be an image reference such as registry.example/quick-exit:v1"},
		{"settle-period", o.settlePeriod, o.settlePeriod >= 0, "not be negative"},
		{"status-period", o.statusPeriod, o.statusPeriod >= 0, "not be negative"},
		{"graceful-shutdown-timeout", o.shutdownTimeout, o.shutdownTimeout >= 0, "not be negative"},
		{"max-concurrent-reconciles", o.maxConcurrentReconciles, o.maxConcurrentReconciles >= 1, "be at least 1"},
	} {
		if !flag.ok {
			return fmt.Errorf("--%s is %q; it must %s", flag.name, fmt.Sprint(flag.value), flag.must)
		}
	}
	return nil
}

func (o *options) virtualNodes() (plan.VirtualNodes, error) {
	virtual := plan.DefaultVirtualNodes()
	for _, label := range o.virtualNodeLabels {
		key, value, _ := strings.Cut(label, "=")
		if len(content.IsLabelKey(key)) > 0 || len(content.IsLabelValue(value)) > 0 {
			return virtual, fmt.Errorf("--virtual-node-label is %q; it must be key or key=value of a label", label)
		}
		virtual.Labels = append(virtual.Labels, plan.LabelMatch{Key: key, Value: value})
	}
	for _, taint := range o.virtualNodeTaints {
		if len(content.IsLabelKey(taint)) > 0 {
			return virtual, fmt.Errorf("--virtual-node-taint is %q; it must be the key of a taint", taint)
		}
		virtual.Taints = append(virtual.Taints, taint)
	}
	return virtual, nil
}
