// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestDescribeConversion(t *testing.T) {
	logs := func(w *fixture) {
		w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: "logs"})
	}
	for name, tc := range map[string]struct {
		change     func(w *fixture)
		containers []string // NAME by REQUESTER: REASON
		findings   []string // REASON CONTAINER, worst first
	}{
		"no declaration": {func(*fixture) {}, nil, nil},
		"not requested": {func(w *fixture) { w.policy(asIs, "proxy") },
			[]string{"proxy by : ConversionNotRequested"}, []string{"ConversionNotRequested "}},
		"requested": {converts, []string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative"}, []string{"WouldConvert proxy"}},
		"DryRun counts as enforced": {func(w *fixture) { w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); dryRun(s) }, "proxy") },
			[]string{"proxy by SidecarTerminationPolicy/p0 (DryRun): ConvertedToNative"}, []string{"WouldConvert proxy"}},
		"one of two": {func(w *fixture) { logs(w); converts(w); w.policy(asIs, "logs") },
			[]string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative", "logs by : ConversionNotRequested"}, []string{"WouldConvert proxy"}},
		"one is excluded": {func(w *fixture) {
			logs(w)
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); s.Sidecars[1].DrainSeconds = ptr.To[int32](5) }, "proxy", "logs")
		}, []string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative", "logs by SidecarTerminationPolicy/p0: DrainConfigured"},
			[]string{"DrainConfigured logs", "WouldConvert proxy"}},
		"only one, and excluded": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); s.DrainSeconds = ptr.To[int32](5) }, "proxy")
		}, []string{"proxy by SidecarTerminationPolicy/p0: DrainConfigured"}, []string{"DrainConfigured proxy"}},
		"pod as a whole": {func(w *fixture) { converts(w); w.Pod.Pod.Spec.NodeName = "node-1" },
			[]string{"proxy by : NodeNameSet"}, []string{"NodeNameSet "}},
		"no main container": {func(w *fixture) { w.policy(preferred, "main", "proxy") },
			[]string{"main by : NoMainContainer", "proxy by : NoMainContainer"}, []string{"NoMainContainer "}},
		"native already": {func(w *fixture) {
			w.Pod.Pod.Spec.InitContainers = []corev1.Container{{Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		}, []string{"native by : NativeSidecar"}, nil},
		"container that a webhook may inject": {func(w *fixture) { w.policy(preferred, "proxy", "injected") },
			[]string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative"}, []string{"WouldConvert proxy", "ContainerNotFound "}},
		"container of a policy that does not ask": {func(w *fixture) { converts(w); w.policy(asIs, "injected") },
			[]string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative"}, []string{"WouldConvert proxy"}},
		"podFailurePolicy": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { preferred(s); dryRun(s) }, "proxy")
			w.FailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				ruleFor("", batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpIn, 143),
			}}
		}, []string{"proxy by SidecarTerminationPolicy/p0 (DryRun): ConvertedToNative"},
			[]string{"SidecarMatchesFailurePolicy proxy", "WouldConvert proxy"}},
		"pod that was converted": {func(w *fixture) { converted(w); converts(w) },
			[]string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative"}, []string{"ReapplyRejected ", "WouldConvert proxy"}},
		"pod of another controller": {func(w *fixture) {
			w.runs(plan.NodeReal)
			converts(w)
			w.Pod.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Workflow", Controller: ptr.To(true)}}
		}, []string{"proxy by SidecarTerminationPolicy/p0: ConvertedToNative"}, []string{"WouldConvert proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			given, copied := newFixture(), newFixture()
			tc.change(given)
			tc.change(copied)
			report := explain.DescribeConversion(given.Pod, given.operator, noon)
			unchanged(t, "DescribeConversion", copied, given)
			var containers, findings, names []string
			for _, c := range report.Containers {
				by := c.By
				if c.DryRun {
					by += " (DryRun)"
				}
				containers = append(containers, fmt.Sprintf("%s by %s: %s", c.Name, by, c.Reason))
				if c.Converts {
					names = append(names, c.Name)
				}
				if c.Converts == (c.Message != "") {
					t.Errorf("message is missing or superfluous: %+v", c)
				}
			}
			for _, f := range report.Findings {
				findings = append(findings, string(f.Reason)+" "+f.Container)
			}
			if !slices.Equal(containers, tc.containers) {
				t.Errorf("containers: got  %q\nwant %q", containers, tc.containers)
			}
			if !slices.Equal(findings, tc.findings) {
				t.Errorf("findings: got  %q\nwant %q", findings, tc.findings)
			}
			if got := strings.Join(report.Sidecars(), ","); report.Converts != (len(names) > 0) || got != strings.Join(names, ",") {
				t.Errorf("converts %t, sidecars %s, containers %q", report.Converts, got, names)
			}
		})
	}
}
