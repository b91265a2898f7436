// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/controllers"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// parse returns what the flags mean for the reconcilers.
func parse(t *testing.T, arguments ...string) (controllers.Options, error) {
	t.Helper()
	options := defaultOptions()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.bind(flags)
	if err := flags.Parse(arguments); err != nil {
		return controllers.Options{}, err
	}
	return options.controllerOptions()
}

// byDefault is what the operator does when it is started without flags.
func byDefault() controllers.Options {
	return controllers.Options{
		Resolve:                 resolve.Options{ExitCodes: v1alpha1.ExitCodesIgnore},
		PodPhase:                plan.PodPhaseEnabled,
		MaxGracePeriod:          time.Hour,
		SettlePeriod:            1500 * time.Millisecond,
		StatusPeriod:            5 * time.Second,
		NodeMarks:               plan.DefaultNodeMarks(),
		MaxConcurrentReconciles: 32,
		Clock:                   clock.RealClock{},
	}
}

func TestFlagsReachTheReconcilers(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		change    func(*controllers.Options)
	}{
		"no flag": {nil, func(*controllers.Options) {}},
		"the environment variables can be left unread": {
			[]string{"--env-convention=Disabled"}, func(o *controllers.Options) { o.Resolve.IgnoreEnv = true },
		},
		"exit codes can count by default": {
			[]string{"--default-exit-codes=Respect"}, func(o *controllers.Options) { o.Resolve.ExitCodes = v1alpha1.ExitCodesRespect },
		},
		"an image can be given": {
			[]string{"--quick-exit-image=registry.example:5000/quick-exit@sha256:0123"},
			func(o *controllers.Options) { o.Resolve.Image = "registry.example:5000/quick-exit@sha256:0123" },
		},
		"paths of the image can be given": {
			[]string{"--quick-exit-paths=default,/app/server", "--quick-exit-paths=/opt/proxy"},
			func(o *controllers.Options) {
				o.Resolve.QuickExitPaths = quickexit.CoverageOf("default", "/app/server", "/opt/proxy")
			},
		},
		"an image can cover every command": {
			[]string{"--quick-exit-paths=*"}, func(o *controllers.Options) { o.Resolve.QuickExitPaths = quickexit.CoverageOf(quickexit.Everything) },
		},
		"images that policies may name can be listed": {
			[]string{"--allowed-quick-exit-image=registry.example/team/*,registry.example/quick-exit:v1", "--quick-exit-image-digests=Required", "--env-images=Listed"},
			func(o *controllers.Options) {
				o.Images = imagelist.List{
					Entries:        []imagelist.Entry{entry(t, "registry.example/team/*"), entry(t, "registry.example/quick-exit:v1")},
					DigestRequired: true, EnvironmentListed: true,
				}
			},
		},
		"phases can be left alone": {
			[]string{"--pod-phase=Disabled"}, func(o *controllers.Options) { o.PodPhase = plan.PodPhaseDisabled },
		},
		"phases can be the last resort": {
			[]string{"--pod-phase=LastResort"}, func(o *controllers.Options) { o.PodPhase = plan.PodPhaseLastResort },
		},
		"phases can be left alone beyond a grace period": {
			[]string{"--pod-phase-max-grace-period=90s"}, func(o *controllers.Options) { o.MaxGracePeriod = 90 * time.Second },
		},
		"containers can be left to others than OpenKruise": {
			[]string{"--crr=Disabled"}, func(o *controllers.Options) { o.CRRDisabled = true },
		},
		"images can be left for nodes to pull": {
			[]string{"--pre-pull=Disabled"}, func(o *controllers.Options) { o.PrePullDisabled = true },
		},
		"pull jobs of cluster policies can live elsewhere": {
			[]string{"--pre-pull-namespace=images"}, func(o *controllers.Options) { o.PrePullNamespace = "images" },
		},
		"images can be left alone": {
			[]string{"--image-swap=Disabled"}, func(o *controllers.Options) { o.ImageDisabled = true },
		},
		"periods can be zero": {
			[]string{"--settle-period=0", "--status-period=0s"},
			func(o *controllers.Options) { o.SettlePeriod, o.StatusPeriod = 0, 0 },
		},
		"further virtual nodes can be told": {
			[]string{"--virtual-node-label=example.com/virtual", "--virtual-node-label=kind=eci,arm", "--virtual-node-taint=example.com/no-kubelet"},
			func(o *controllers.Options) {
				o.NodeMarks.Virtual.Labels = append(o.NodeMarks.Virtual.Labels,
					plan.LabelMatch{Key: "example.com/virtual"}, plan.LabelMatch{Key: "kind", Value: "eci"}, plan.LabelMatch{Key: "arm"})
				o.NodeMarks.Virtual.Taints = append(o.NodeMarks.Virtual.Taints, "example.com/no-kubelet")
			},
		},
		"further nodes without OpenKruise's daemon can be told": {
			[]string{"--daemonless-node-label=kubernetes.io/os=windows", "--daemonless-node-label=example.com/bare", "--daemonless-node-taint=example.com/no-daemons"},
			func(o *controllers.Options) {
				o.NodeMarks.Daemonless.Labels = append(o.NodeMarks.Daemonless.Labels,
					plan.LabelMatch{Key: "kubernetes.io/os", Value: "windows"}, plan.LabelMatch{Key: "example.com/bare"})
				o.NodeMarks.Daemonless.Taints = append(o.NodeMarks.Daemonless.Taints, "example.com/no-daemons")
			},
		},
		"the number of workers can be set": {
			[]string{"--max-concurrent-reconciles=1"}, func(o *controllers.Options) { o.MaxConcurrentReconciles = 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := byDefault()
			tc.change(&want)
			got, err := parse(t, tc.arguments...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(clock.RealClock{}, imagelist.Entry{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFlagWithABadValueIsNamed(t *testing.T) {
	for _, argument := range []string{
		"--env-convention=enabled",
		"--env-convention=",
		"--crr=false",
		"--image-swap=disabled",
		"--pod-phase=Off",
		"--pod-phase=lastresort",
		"--pod-phase-max-grace-period=0",
		"--pod-phase-max-grace-period=-1h",
		"--pod-phase-max-grace-period=3600",
		"--pre-pull=no",
		"--pre-pull-namespace=not/a/name",
		"--default-exit-codes=ignore",
		"--quick-exit-image=quick exit",
		"--quick-exit-image=-v1",
		"--allowed-quick-exit-image=*",
		"--allowed-quick-exit-image=Registry/Quick Exit",
		"--quick-exit-image-digests=Enabled",
		"--env-images=Allowed",
		"--quick-exit-paths=bin/server",
		"--quick-exit-paths=/app/",
		"--quick-exit-paths=default,all",
		"--quick-exit-paths=default, /app/server",
		"--settle-period=-1s",
		"--settle-period=fast",
		"--status-period=-1ns",
		"--graceful-shutdown-timeout=-1s",
		"--max-concurrent-reconciles=0",
		"--max-concurrent-reconciles=many",
		"--virtual-node-label==fargate",
		"--virtual-node-label=a,,b",
		"--virtual-node-label=type=virtual=kubelet",
		"--virtual-node-label=no spaces",
		"--virtual-node-taint=example.com/a,",
		"--virtual-node-taint=example.com/virtual:NoSchedule",
		"--virtual-node-taint=example.com/virtual=true",
		"--daemonless-node-label=kubernetes.io/os==windows",
		"--daemonless-node-taint=example.com/no-daemons:NoSchedule",
		"--leader-elect=perhaps",
		"--zap-log-level=chatty",
	} {
		t.Run(argument, func(t *testing.T) {
			name, _, _ := strings.Cut(argument, "=")
			switch _, err := parse(t, argument); {
			case err == nil:
				t.Error("accepted")
			case !strings.Contains(err.Error(), name):
				t.Errorf("the error does not name %s: %v", name, err)
			}
		})
	}
}

func TestABadFlagEndsTheProgramBeforeItLooksForACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/does/not/exist")
	command := newCommand()
	command.SetArgs([]string{"--pod-phase=no"})
	err := command.ExecuteContext(t.Context())
	if want := `--pod-phase is "no"; it must be Enabled, LastResort or Disabled`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestEveryFlagIsExplained(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	defaultOptions().bind(flags)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Usage == "" {
			t.Errorf("--%s has no usage", flag.Name)
		}
	})
	var output bytes.Buffer
	command := newCommand()
	command.SetOut(&output)
	command.SetArgs([]string{"--help"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(output.String(), "--quick-exit-image") {
		t.Errorf("the help does not list the flags:\n%s", &output)
	}
}

func TestAPodFindsItsOwnNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if got := ownNamespace(file); got != "" {
		t.Errorf("got namespace %q outside of a cluster", got)
	}
	if err := os.WriteFile(file, []byte("operators\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ownNamespace(file); got != "operators" {
		t.Errorf("got namespace %q", got)
	}
}

func TestTheSchemeKnowsWhatTheCacheSelects(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	for object := range controllers.CacheOptions(scheme).ByObject {
		if _, _, err := scheme.ObjectKinds(object); err != nil {
			t.Error(err)
		}
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
