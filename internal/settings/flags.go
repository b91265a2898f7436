// SPDX-License-Identifier: Apache-2.0

package settings

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

	"github.com/sidecar-termination/operator/api/v1alpha1"
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

// maxGracePeriod is also in config/admission/outcome.yaml.
const maxGracePeriod = time.Hour

// lastResort is the third value of --pod-phase.
const lastResort = string(plan.PodPhaseLastResort)

// The values of --node-kind that are no kinds of nodes.
const (
	nodeKindRead    = "Read"
	nodeKindUnknown = "Unknown"
)

// maxWatchNamespaces bounds the operator's watches: it has three for each namespace.
const maxWatchNamespaces = 64

const (
	// statusPeriod is the shortest time between two writes of one policy's status: people see it as current, and a policy of a
	// burst of pods costs the API server one write in 5 s.
	statusPeriod = 5 * time.Second
	// workers is how many pods the operator reconciles at once. A reconcile mostly waits for the API server, whose own limit for
	// requests in flight is far above this.
	workers = 32
	// shutdownTimeout bounds in-flight work on shutdown. It is half of the default grace period of a pod, so that the lease is
	// released before the kubelet kills the operator.
	shutdownTimeout = 15 * time.Second
)

// Flags are the operator's flags.
type Flags struct {
	// operator has the settings whose flags need no conversion.
	operator              Operator
	metricsAddress        string
	metricsAuthentication string
	leaderElect           bool
	quickExitPaths        []string
	allowedImages         []string
	envConvention         string
	optOut                string
	defaultExitCodePolicy string
	crr                   string
	imageSwap             string
	podPhase              string
	prePull               string
	virtualNodeLabels     []string
	virtualNodeTaints     []string
	nodeKind              string
}

// Bind adds all flags to the set, with their defaults.
func Bind(flags *pflag.FlagSet) *Flags {
	f := &Flags{}
	f.bindDecisions(flags)
	f.bindProcess(flags)
	return f
}

// BindDecisions adds the flags that decisions about pods depend on.
func BindDecisions(flags *pflag.FlagSet) {
	(&Flags{}).bindDecisions(flags)
}

// Parse returns the settings of an operator that runs with the arguments. It ignores unknown flags, because the operator
// may have another version.
func Parse(arguments []string) (Operator, error) { return ParseWith(arguments, nil) }

// ParseWith is Parse, except that flags for decisions that are set in given override the arguments, lists included. A quick-exit image
// that is given without its paths has the default paths, not those of another image.
func ParseWith(arguments []string, given *pflag.FlagSet) (Operator, error) {
	flags := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	f := Bind(flags)
	if err := flags.Parse(arguments); err != nil {
		return Operator{}, err
	}
	if given != nil {
		if err := override(flags, given); err != nil {
			return Operator{}, err
		}
	}
	return f.Operator()
}

// override sets the flags for decisions that are set in given, which BindDecisions has bound.
func override(flags, given *pflag.FlagSet) error {
	decisions := pflag.NewFlagSet("decisions", pflag.ContinueOnError)
	BindDecisions(decisions)
	var errs []error
	if paths, ok := flags.Lookup("quick-exit-paths").Value.(pflag.SliceValue); ok && given.Changed("quick-exit-image") {
		errs = append(errs, paths.Replace(nil))
	}
	given.Visit(func(flag *pflag.Flag) {
		if decisions.Lookup(flag.Name) == nil {
			return
		}
		own := flags.Lookup(flag.Name).Value
		values, isList := flag.Value.(pflag.SliceValue)
		if list, ok := own.(pflag.SliceValue); ok && isList {
			errs = append(errs, list.Replace(values.GetSlice()))
			return
		}
		errs = append(errs, own.Set(flag.Value.String()))
	})
	return errors.Join(errs...)
}

func (f *Flags) bindProcess(flags *pflag.FlagSet) {
	o := &f.operator
	flags.StringVar(&f.metricsAddress, "metrics-bind-address", ":8443", "address that serves metrics; 0 turns metrics off")
	flags.StringVar(&f.metricsAuthentication, "metrics-authentication", enabled,
		"Enabled: serve metrics over HTTPS, to clients with the permission to get /metrics; Disabled: serve them over HTTP to everyone")
	flags.StringVar(&o.Metrics.CertDir, "metrics-cert-dir", "",
		"directory with tls.crt and tls.key for metrics, reloaded when they change; by default the operator generates a self-signed certificate")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address that serves /healthz and /readyz")
	flags.StringVar(&o.PprofAddress, "pprof-bind-address", "",
		"address that serves Go profiles without authentication, so use a loopback address; empty turns them off")
	flags.BoolVar(&f.leaderElect, "leader-elect", true, "let only one of several replicas act; it releases its lease on shutdown")
	flags.StringVar(&o.Lease.Namespace, "leader-election-namespace", "", "namespace of the lease; by default the operator's own")
	flags.StringVar(&f.prePull, "pre-pull", enabled, "Enabled or Disabled: whether the operator may create OpenKruise ImagePullJobs for policies with prePull")

	goFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	o.Log.BindFlags(goFlags)
	flags.AddGoFlagSet(goFlags)
}

func (f *Flags) bindDecisions(flags *pflag.FlagSet) {
	o := &f.operator
	flags.StringVar(&o.Resolve.Image, "quick-exit-image", "", "default image of mode Image, if neither the policy nor an environment variable names one")
	flags.StringSliceVar(&f.quickExitPaths, "quick-exit-paths", nil,
		"commands that --quick-exit-image can replace: absolute paths, default for the paths of the shipped image, or * for every command; "+
			fmt.Sprintf("may be repeated, at most %d entries; without it, the default paths", quickexit.MaxEntries))
	flags.StringSliceVar(&f.allowedImages, "allowed-quick-exit-image", nil,
		"image that policies and "+v1alpha1.EnvTerminateWithImage+" may name: a repository, a reference with tag or digest, or registry.example/team/* for all below; "+
			"may be repeated; without it, they may name any image")
	flags.StringVar(&f.envConvention, "env-convention", enabled,
		"Enabled or Disabled: whether "+v1alpha1.EnvTerminate+" and its related variables declare sidecars; disable it if OpenKruise's SidecarTerminator is on")
	flags.StringVar(&f.optOut, "opt-out", enabled,
		"Enabled or Disabled: whether label "+v1alpha1.LabelIgnore+"=true of a pod or its namespace keeps the operator away")
	flags.StringVar(&f.defaultExitCodePolicy, "default-exit-code-policy", string(v1alpha1.ExitCodePolicyIgnore),
		"Ignore or Respect: whether a sidecar's exit code counts, if neither the policy nor an environment variable says so")
	flags.StringVar(&f.crr, "crr", enabled, "Enabled or Disabled: whether the operator may create OpenKruise ContainerRecreateRequests (mode CRR)")
	flags.StringVar(&f.imageSwap, "image-swap", enabled, "Enabled or Disabled: whether the operator may replace the images of containers (mode Image)")
	flags.StringVar(&f.podPhase, "pod-phase", enabled,
		"Enabled, LastResort or Disabled: whether pods may be ended by their phase (mode PodPhase); LastResort: only after all other modes, or if the mode is declared")
	flags.DurationVar(&o.Capabilities.MaxGracePeriod, "pod-phase-max-grace-period", maxGracePeriod,
		"longest terminationGracePeriodSeconds of a pod that is ended by its phase, because quotas no longer count such a pod while its sidecars run; "+
			"at most 1h, and 1m where no policy declares the sidecar")
	flags.StringSliceVar(&o.WatchNamespaces, "watch-namespaces", nil,
		fmt.Sprintf("the only namespaces whose pods and policies the operator reads, at most %d; without it, the whole cluster. "+
			"The operator then needs no permission in the cluster, and uses neither cluster policies nor OpenKruise", maxWatchNamespaces))
	flags.StringVar(&f.nodeKind, "node-kind", "",
		"Read: read the node of each pod; Real, Daemonless or Virtual: every pod runs on a node of this kind; Unknown: use only mode Image, which all kinds have; "+
			"by default Read, and Unknown with --watch-namespaces")
	flags.StringSliceVar(&f.virtualNodeLabels, "virtual-node-label", nil, "additional label, key or key=value, of nodes without a kubelet; may be repeated")
	flags.StringSliceVar(&f.virtualNodeTaints, "virtual-node-taint", nil, "key of an additional taint of nodes without a kubelet; may be repeated")
}

// Operator returns the settings once the flags are parsed. An error names the flag.
func (f *Flags) Operator() (Operator, error) {
	if err := f.check(); err != nil {
		return Operator{}, err
	}
	o := f.operator
	o.StatusPeriod, o.MaxConcurrentReconciles, o.ShutdownTimeout = statusPeriod, workers, shutdownTimeout
	o.WatchNamespaces = slices.Compact(slices.Sorted(slices.Values(o.WatchNamespaces)))
	o.NodeKindRules = plan.DefaultNodeKindRules()
	o.NodeKindRules.All = f.kindOfAllNodes()
	if err := f.addVirtualNodes(&o.NodeKindRules.Virtual); err != nil {
		return Operator{}, err
	}
	if err := f.addImages(&o.Capabilities.Images); err != nil {
		return Operator{}, err
	}
	o.Resolve.IgnoreEnv, o.Resolve.NoOptOut = f.envConvention == disabled, f.optOut == disabled
	o.Resolve.ExitCodePolicy = v1alpha1.ExitCodePolicy(f.defaultExitCodePolicy)
	o.Resolve.QuickExitPaths = quickexit.CoverageOf(f.quickExitPaths...)
	o.Capabilities.EnabledModes = plan.EnabledModes{
		CRR: f.crr == enabled, Image: f.imageSwap == enabled, PodPhase: plan.PodPhaseUse(f.podPhase), PrePull: f.prePull == enabled,
	}
	o.Capabilities.NamespacesOnly = len(o.WatchNamespaces) > 0
	o.PrePullNamespace = cmp.Or(ownNamespace(serviceAccountNamespace), o.Lease.Namespace)
	if o.Lease.Name = LeaseName; !f.leaderElect {
		o.Lease = Lease{}
	}
	if f.metricsAddress != "0" {
		o.Metrics.Address = f.metricsAddress
	}
	o.Metrics.Authenticated = f.metricsAuthentication == enabled
	return o, nil
}

// choice is a flag with one of a few values.
type choice struct {
	flag, value string
	allowed     []string
}

func (f *Flags) choices() []choice {
	switched := []string{enabled, disabled}
	return []choice{
		{"env-convention", f.envConvention, switched},
		{"opt-out", f.optOut, switched},
		{"crr", f.crr, switched},
		{"image-swap", f.imageSwap, switched},
		{"pod-phase", f.podPhase, []string{enabled, lastResort, disabled}},
		{"node-kind", f.nodeKind, []string{nodeKindRead, string(plan.NodeReal), string(plan.NodeDaemonless), string(plan.NodeVirtual), nodeKindUnknown}},
		{"pre-pull", f.prePull, switched},
		{"metrics-authentication", f.metricsAuthentication, switched},
		{"default-exit-code-policy", f.defaultExitCodePolicy, []string{string(v1alpha1.ExitCodePolicyIgnore), string(v1alpha1.ExitCodePolicyRespect)}},
	}
}

// Values returns the values of each flag that has only a few.
func Values() map[string][]string {
	values := map[string][]string{}
	for _, choice := range (&Flags{}).choices() {
		values[choice.flag] = choice.allowed
	}
	return values
}

func (f *Flags) check() error {
	for _, c := range f.choices() {
		if unset := c.flag == "node-kind" && c.value == ""; !unset && !slices.Contains(c.allowed, c.value) {
			last := len(c.allowed) - 1
			return fmt.Errorf("--%s is %q; it must be %s or %s", c.flag, c.value, strings.Join(c.allowed[:last], ", "), c.allowed[last])
		}
	}
	if period := f.operator.Capabilities.MaxGracePeriod; period <= 0 || period > maxGracePeriod {
		return fmt.Errorf("--pod-phase-max-grace-period is %q; it must be longer than 0 and at most 1h", period)
	}
	if image := f.operator.Resolve.Image; image != "" && !resolve.IsImageReference(image) {
		return fmt.Errorf("--quick-exit-image is %q; it must be an image reference of at most 512 characters such as registry.example/quick-exit:v1", image)
	}
	if err := quickexit.ValidateEntries(f.quickExitPaths); err != nil {
		return fmt.Errorf("--quick-exit-paths: %w", err)
	}
	return f.checkNamespaces()
}

func (f *Flags) checkNamespaces() error {
	namespaces := f.operator.WatchNamespaces
	if len(namespaces) > maxWatchNamespaces {
		return fmt.Errorf("--watch-namespaces has %d entries; it may have at most %d", len(namespaces), maxWatchNamespaces)
	}
	for _, namespace := range namespaces {
		if len(content.IsDNS1123Label(namespace)) > 0 {
			return fmt.Errorf("--watch-namespaces has %q; it must have names of namespaces", namespace)
		}
	}
	return nil
}

// kindOfAllNodes returns the kind that every node has by the flags, or empty if the operator reads nodes.
func (f *Flags) kindOfAllNodes() plan.NodeKind {
	switch {
	case f.nodeKind == nodeKindUnknown, f.nodeKind == "" && len(f.operator.WatchNamespaces) > 0:
		return plan.NodeNotRead
	case f.nodeKind == "", f.nodeKind == nodeKindRead:
		return ""
	}
	return plan.NodeKind(f.nodeKind)
}

// addImages adds the images that policies and environment variables may name. An error names the flag.
func (f *Flags) addImages(list *imagelist.List) error {
	for _, text := range f.allowedImages {
		entry, err := imagelist.ParseEntry(text)
		if err != nil {
			return fmt.Errorf("--allowed-quick-exit-image: %w", err)
		}
		list.Entries = append(list.Entries, entry)
	}
	return nil
}

// addVirtualNodes adds the labels and taints of the flags. An error names the flag.
func (f *Flags) addVirtualNodes(marks *plan.NodeMatcher) error {
	for _, label := range f.virtualNodeLabels {
		key, value, _ := strings.Cut(label, "=")
		if len(content.IsLabelKey(key)) > 0 || len(content.IsLabelValue(value)) > 0 {
			return fmt.Errorf("--virtual-node-label is %q; it must be key or key=value of a label", label)
		}
		marks.Labels = append(marks.Labels, plan.LabelMatch{Key: key, Value: value})
	}
	for _, taint := range f.virtualNodeTaints {
		if len(content.IsLabelKey(taint)) > 0 {
			return fmt.Errorf("--virtual-node-taint is %q; it must be the key of a taint", taint)
		}
		marks.Taints = append(marks.Taints, taint)
	}
	return nil
}

// serviceAccountNamespace is the file that holds the namespace of a pod.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownNamespace returns the namespace that the operator runs in; empty outside of a cluster.
func ownNamespace(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}
