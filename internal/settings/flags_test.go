// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// parse returns the settings of an operator that is started with the arguments.
func parse(arguments ...string) (Operator, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := Bind(flags)
	if err := flags.Parse(arguments); err != nil {
		return Operator{}, err
	}
	return f.Operator()
}

// defaults are the settings without flags.
func defaults() Operator {
	return Operator{
		Decisions: Decisions{
			Resolve:       resolve.Options{ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore},
			NodeKindRules: plan.DefaultNodeKindRules(),
			Capabilities: plan.Capabilities{
				EnabledModes:   plan.EnabledModes{CRR: true, Image: true, PodPhase: plan.PodPhaseEnabled, PrePull: true},
				MaxGracePeriod: time.Hour,
			},
		},
		StatusPeriod:            5 * time.Second,
		MaxConcurrentReconciles: 32,
		Lease:                   Lease{Name: LeaseName},
		Metrics:                 Metrics{Address: ":8443", Authenticated: true},
		ProbeAddress:            ":8081",
		ShutdownTimeout:         15 * time.Second,
	}
}

// The chart has other values for flags that also change permissions or images, and none for those on which other objects depend.
func TestChartKnowsFlags(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "chart", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Flags struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	Bind(flags)
	want := []string{}
	flags.VisitAll(func(f *pflag.Flag) { want = append(want, f.Name) })
	got := slices.Collect(maps.Keys(schema.Properties.Flags.Properties))
	got = append(got, "crr", "image-swap", "pod-phase", "pre-pull", "quick-exit-image", "watch-namespaces")
	got = append(got, "health-probe-bind-address", "leader-elect", "leader-election-namespace", "metrics-bind-address")
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Flags (-operator +chart):\n%s", diff)
	}
}

func TestFlagsBecomeSettings(t *testing.T) {
	for arguments, change := range map[string]func(*Operator){
		"":                                   func(*Operator) {},
		"--opt-out=Disabled":                 func(o *Operator) { o.Resolve.NoOptOut = true },
		"--default-exit-code-policy=Respect": func(o *Operator) { o.Resolve.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect },
		"--quick-exit-image=registry.example:5000/quick-exit@sha256:0123": func(o *Operator) {
			o.Resolve.Image = "registry.example:5000/quick-exit@sha256:0123"
		},
		"--quick-exit-paths=default,/app/server --quick-exit-paths=/opt/proxy": func(o *Operator) {
			o.Resolve.QuickExitPaths = quickexit.CoverageOf("default", "/app/server", "/opt/proxy")
		},
		"--allowed-quick-exit-image=registry.example/team/*,registry.example/quick-exit:v1": func(o *Operator) {
			o.Capabilities.Images.Entries = []imagelist.Entry{entry(t, "registry.example/team/*"), entry(t, "registry.example/quick-exit:v1")}
		},
		"--pod-phase=LastResort":           func(o *Operator) { o.Capabilities.PodPhase = plan.PodPhaseLastResort },
		"--pod-phase-max-grace-period=90s": func(o *Operator) { o.Capabilities.MaxGracePeriod = 90 * time.Second },
		"--crr=Disabled":                   func(o *Operator) { o.Capabilities.CRR = false },
		"--pre-pull=Disabled":              func(o *Operator) { o.Capabilities.PrePull = false },
		"--image-swap=Disabled":            func(o *Operator) { o.Capabilities.Image = false },
		"--virtual-node-label=example.com/virtual --virtual-node-label=kind=eci,arm --virtual-node-taint=example.com/no-kubelet": func(o *Operator) {
			o.NodeKindRules.Virtual.Labels = append(o.NodeKindRules.Virtual.Labels,
				plan.LabelMatch{Key: "example.com/virtual"}, plan.LabelMatch{Key: "kind", Value: "eci"}, plan.LabelMatch{Key: "arm"})
			o.NodeKindRules.Virtual.Taints = append(o.NodeKindRules.Virtual.Taints, "example.com/no-kubelet")
		},
		"--watch-namespaces=etl,batch --watch-namespaces=batch": func(o *Operator) {
			o.WatchNamespaces, o.Capabilities.NamespacesOnly, o.NodeKindRules.All = []string{"batch", "etl"}, true, plan.NodeNotRead
		},
		"--watch-namespaces=batch --node-kind=Real": func(o *Operator) {
			o.WatchNamespaces, o.Capabilities.NamespacesOnly, o.NodeKindRules.All = []string{"batch"}, true, plan.NodeReal
		},
		"--node-kind=Unknown":                                         func(o *Operator) { o.NodeKindRules.All = plan.NodeNotRead },
		"--leader-election-namespace=leases":                          func(o *Operator) { o.Lease.Namespace, o.PrePullNamespace = "leases", "leases" },
		"--leader-elect=false":                                        func(o *Operator) { o.Lease = Lease{} },
		"--metrics-bind-address=0":                                    func(o *Operator) { o.Metrics.Address = "" },
		"--metrics-bind-address=:1 --metrics-authentication=Disabled": func(o *Operator) { o.Metrics = Metrics{Address: ":1"} },
		"--health-probe-bind-address=:2 --pprof-bind-address=127.0.0.1:3": func(o *Operator) {
			o.ProbeAddress, o.PprofAddress = ":2", "127.0.0.1:3"
		},
	} {
		t.Run(arguments, func(t *testing.T) {
			want := defaults()
			change(&want)
			got, err := parse(strings.Fields(arguments)...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(imagelist.Entry{}), cmpopts.IgnoreFields(Operator{}, "Log")); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidFlagIsNamedInTheError(t *testing.T) {
	for _, argument := range []string{
		"--env-convention=enabled",
		"--crr=false",
		"--pod-phase=Off",
		"--pod-phase-max-grace-period=0",
		"--pod-phase-max-grace-period=3601s",
		"--pre-pull=no",
		"--default-exit-code-policy=ignore",
		"--quick-exit-image=quick exit",
		"--allowed-quick-exit-image=*",
		"--quick-exit-paths=bin/server",
		"--virtual-node-label==fargate",
		"--virtual-node-taint=example.com/virtual:NoSchedule",
		"--watch-namespaces=batch,,etl",
		"--watch-namespaces=" + strings.Repeat("a", 64),
		"--watch-namespaces=" + strings.TrimSuffix(strings.Repeat("batch,", 65), ","),
		"--node-kind=virtual",
		"--leader-elect=perhaps",
	} {
		t.Run(argument, func(t *testing.T) {
			name, _, _ := strings.Cut(argument, "=")
			switch _, err := parse(argument); {
			case err == nil:
				t.Error("accepted")
			case !strings.Contains(err.Error(), name):
				t.Errorf("the error does not name %s: %v", name, err)
			}
		})
	}
}

func TestWatchesNamespace(t *testing.T) {
	cluster, batch := Decisions{}, Decisions{WatchNamespaces: []string{"batch"}}
	for namespace, want := range map[string]bool{"batch": true, "etl": false, "": false} {
		if !cluster.Watches(namespace) || batch.Watches(namespace) != want {
			t.Errorf("namespace %q: %t by an operator of the cluster, %t by one of namespace batch", namespace, cluster.Watches(namespace), batch.Watches(namespace))
		}
	}
}

func TestParseIgnoresFlagsOfOtherVersions(t *testing.T) {
	operator, err := Parse([]string{"--leader-elect", "--flag-of-another-version=1", "--pod-phase=LastResort", "--metrics-bind-address", ":1"})
	if err != nil {
		t.Fatal(err)
	}
	if operator.Capabilities.PodPhase != plan.PodPhaseLastResort || operator.Metrics.Address != ":1" {
		t.Errorf("settings are %+v", operator)
	}
	if _, err := Parse([]string{"--pod-phase=Sometimes"}); err == nil {
		t.Error("an invalid flag was accepted")
	}
}

func TestGivenFlagsOverrideArguments(t *testing.T) {
	const image, paths, others = "--quick-exit-image=own:v1 ", "--quick-exit-paths=* ", "--watch-namespaces=batch --allowed-quick-exit-image=own --crr=Disabled"
	for name, tc := range map[string]struct{ given, want string }{
		"nothing":                     {"", image + paths + others},
		"flag of the plugin":          {"--output=json", image + paths + others},
		"another image":               {"--quick-exit-image=given:v1", "--quick-exit-image=given:v1 " + others},
		"another image and its paths": {"--quick-exit-image=given:v1 --quick-exit-paths=/opt/a", "--quick-exit-image=given:v1 --quick-exit-paths=/opt/a " + others},
		"paths alone":                 {"--quick-exit-paths=/opt/a,/opt/b", image + "--quick-exit-paths=/opt/a,/opt/b " + others},
		"list":                        {"--watch-namespaces=etl --watch-namespaces=web", image + paths + strings.Replace(others, "batch", "etl,web", 1)},
		"switch":                      {"--crr=Enabled", image + paths + strings.TrimSuffix(others, " --crr=Disabled")},
	} {
		t.Run(name, func(t *testing.T) {
			given := pflag.NewFlagSet("", pflag.ContinueOnError)
			given.String("output", "", "")
			BindDecisions(given)
			if err := given.Parse(strings.Fields(tc.given)); err != nil {
				t.Fatal(err)
			}
			want, err := Parse(strings.Fields(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseWith(strings.Fields(image+paths+others), given)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(imagelist.Entry{}), cmpopts.IgnoreFields(Operator{}, "Log")); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamespaceOfThePod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if got := ownNamespace(file); got != "" {
		t.Errorf("got %q outside of a cluster", got)
	}
	if err := os.WriteFile(file, []byte("operators\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ownNamespace(file); got != "operators" {
		t.Errorf("got %q", got)
	}
}

func entry(t *testing.T, text string) imagelist.Entry {
	t.Helper()
	entry, err := imagelist.ParseEntry(text)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func TestAdmissionPolicyHasTheMaximumGracePeriod(t *testing.T) {
	content, err := os.ReadFile("../../config/admission/outcome.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if limit := fmt.Sprintf("terminationGracePeriodSeconds <= %d\n", int(maxGracePeriod.Seconds())); !strings.Contains(string(content), limit) {
		t.Errorf("admission policy sidecar-termination-outcome does not have the limit of --pod-phase-max-grace-period, %q", limit)
	}
}

func TestVersionOfBuildInfo(t *testing.T) {
	for built, want := range map[string]string{
		"":        Release,
		"(devel)": Release,
		"v0.3.0":  "v0.3.0",
		"v0.0.0-20260301120000-589d0926f3a1+dirty": "v0.0.0-20260301120000-589d0926f3a1+dirty",
	} {
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: built}}); got != want {
			t.Errorf("%q: got %s, want %s", built, got, want)
		}
	}
}

func TestReferenceOfBuildInfo(t *testing.T) {
	for revision, want := range map[string]string{"": Release, "589d0926f3a1": "589d0926f3a1"} {
		info := &debug.BuildInfo{}
		if revision != "" {
			info.Settings = []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}}
		}
		if got := refOf(info); got != want {
			t.Errorf("%q: got %s, want %s", revision, got, want)
		}
	}
}

// internal/plan tests the default rules. Nodes of EKS have the label of Fargate with another value, and bursting nodes of Huawei Cloud need
// a flag, as docs/virtual-nodes.md says.
func TestNodeKindOfProviders(t *testing.T) {
	for label, want := range map[string]plan.NodeKind{
		"eks.amazonaws.com/compute-type=fargate": plan.NodeDaemonless,
		"eks.amazonaws.com/compute-type=ec2":     plan.NodeReal,
		"kubernetes.io/hostname=bursting-node":   plan.NodeVirtual,
	} {
		operator, err := Parse([]string{"--virtual-node-label=kubernetes.io/hostname=bursting-node"})
		if err != nil {
			t.Fatal(err)
		}
		key, value, _ := strings.Cut(label, "=")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{key: value}}}
		if got := operator.NodeKindRules.Classify(node); got != want {
			t.Errorf("%s: got %q, want %q", label, got, want)
		}
	}
}
