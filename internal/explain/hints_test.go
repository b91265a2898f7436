// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// TestHints shows what a user is told to do, by situation: the hint, then the commands.
func TestHints(t *testing.T) {
	const (
		finish = settings.PluginName + " finish pod/job -n batch"
		check  = settings.PluginName + " check"
		keeps  = "finish the pod now and keep the outcome of its main containers; deleting it repeats their work"
		none   = "; no command does this: change the manifest"
		onlyIf = "only if it is a sidecar, "
		add    = "add it to spec.sidecars of SidecarTerminationPolicy/p0, or list all containers that exit by themselves under mainContainers of a policy"
		list   = "list it under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers"
	)
	swapped := func(state corev1.ContainerState) func(*fixture) {
		return func(w *fixture) {
			w.live(time.Hour, 0)
			w.policy(func(s *v1alpha1.PolicySpec) { only(v1alpha1.ModeImage)(s); s.Image = "quick-exit:v1" }, "proxy")
			w.Pod.Pod.Status.ContainerStatuses[1].State = state
			w.Attempts = []plan.Attempt{{Mode: v1alpha1.ModeImage, RestartCounts: map[string]int32{"proxy": 0}, Started: noon.Add(-time.Hour)}}
		}
	}
	onVirtualNode := func(image string) func(*fixture) {
		return func(w *fixture) {
			w.runs(plan.NodeVirtual)
			w.policy(func(s *v1alpha1.PolicySpec) { s.Image = image }, "proxy")
			w.Pod.Pod.Spec.Containers[1].Command = []string{"/opt/proxy"}
		}
	}
	for name, tc := range map[string]struct {
		change func(w *fixture)
		reason v1alpha1.Reason
		want   []string
	}{
		"stuck": {swapped(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), v1alpha1.ReasonStuck, []string{"read the log of the sidecar and the failed attempts; or " + keeps,
			"kubectl -n batch logs job --all-containers --prefix --tail=20", finish}},
		"quick-exit image cannot be pulled": {swapped(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}),
			v1alpha1.ReasonAttemptFailed, []string{
				"check the name of quick-exit image quick-exit:v1, whether the node may pull it, and whether it has the container's command",
				"kubectl -n batch describe pod job"}},
		"sidecar ignores SIGTERM": {swapped(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), v1alpha1.ReasonAttemptFailed, []string{
			"if the sidecar needs more time, raise terminationDeadlineSeconds in SidecarTerminationPolicy/p0",
			`kubectl -n batch patch stp p0 --type=json -p '[{"op":"add","path":"/spec/terminationDeadlineSeconds","value":60}]'`}},
		"operator down": {func(w *fixture) { w.live(time.Hour, 0); w.policy(asIs, "proxy") }, v1alpha1.ReasonOverdue, []string{
			"check that the operator is running and has its permissions; or " + keeps, check, finish}},
		"virtual node without an image": {onVirtualNode(""), v1alpha1.ReasonNoUsableMode, []string{
			"set image in the policy's entry for the sidecar, or the operator's --quick-exit-image", check}},
		"stuck on a virtual node": {func(w *fixture) { w.live(time.Hour, 0); w.Node = plan.NodeVirtual; w.policy(asIs, "proxy") }, v1alpha1.ReasonNoUsableMode, []string{
			"set image in the policy's entry for the sidecar, or the operator's --quick-exit-image", check}},
		"virtual node with another image": {onVirtualNode("quick-exit:v1"), v1alpha1.ReasonNoUsableMode, []string{
			"use an image that covers the command", check}},
		"OpenKruise alone and absent": {withoutKruise(only(v1alpha1.ModeCRR)), v1alpha1.ReasonCRRUnavailable, []string{"install OpenKruise; or set mode to Auto", check}},
		"OpenKruise alone, single namespaces": {func(w *fixture) { w.policy(only(v1alpha1.ModeCRR), "proxy"); w.watchesBatch() }, v1alpha1.ReasonCRRUnavailable, []string{
			"install the operator for the whole cluster; or set mode to Auto", check}},
		"OpenKruise replaced, single namespaces": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.watchesBatch()
		}, v1alpha1.ReasonCRRUnavailable, []string{"install the operator for the whole cluster", check}},
		"hanging pod": {func(w *fixture) { w.live(time.Hour, 0) }, v1alpha1.ReasonMayHang, []string{
			onlyIf + list + "; or " + keeps, settings.PluginName + " lint -n batch -o policy", finish + " --sidecars SIDECAR"}},
		"hanging pod, known sidecar": {func(w *fixture) { w.live(time.Hour, 0); w.known() }, v1alpha1.ReasonMayHang, []string{
			list + "; or " + keeps, settings.PluginName + " lint -n batch -o policy", finish + " --sidecars proxy"}},
		"hanging pod, policy for another sidecar": {func(w *fixture) { w.live(time.Hour, 0); w.policy(asIs, "agent") }, v1alpha1.ReasonMayHang, []string{
			onlyIf + add + "; or " + keeps, "kubectl -n batch edit stp p0", finish + " --sidecars SIDECAR"}},
		"hanging pod, known sidecar, policy for another": {func(w *fixture) { w.live(time.Hour, 0); w.known(); w.policy(asIs, "agent") }, v1alpha1.ReasonMayHang, []string{
			add + "; or " + keeps,
			`kubectl -n batch patch stp p0 --type=json -p '[{"op":"add","path":"/spec/sidecars/-","value":{"name":"proxy"}}]'`, finish + " --sidecars proxy"}},
		"manifest": {func(w *fixture) { w.Pod.Pod.Spec.Containers[1].Name = "envoy"; w.cluster.Offline = true }, v1alpha1.ReasonMayHang, []string{list}},
		"main container misspelled": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[0].Name, w.Pod.Pod.Spec.Containers[1].Name = "worker", "envoy"
			w.policy(mains("wroker"))
		}, v1alpha1.ReasonMayHang, []string{
			"add worker to spec.mainContainers of SidecarTerminationPolicy/p0; the entry wroker stays, because other pods may have that container",
			`kubectl -n batch patch stp p0 --type=json -p '[{"op":"add","path":"/spec/mainContainers/-","value":"worker"}]'`}},
		"sidecar misspelled": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Name = "envoy-sidecar"
			w.policy(func(s *v1alpha1.PolicySpec) { s.Sidecars[1].QuickExitPaths = []v1alpha1.QuickExitPath{"/opt/o'brien"} }, "other", "envoy-sidcar")
		}, v1alpha1.ReasonContainerNotFound, []string{
			"add envoy-sidecar to spec.sidecars of SidecarTerminationPolicy/p0; the entry envoy-sidcar stays, because other pods may have that container",
			`kubectl -n batch patch stp p0 --type=json -p '[{"op":"add","path":"/spec/sidecars/-","value":{"name":"envoy-sidecar","quickExitPaths":["/opt/o'\''brien"]}}]'`}},
		"sidecar misspelled, main container of another policy": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Name = "shiper"
			w.policy(asIs, "shipper")
			w.policy(func(s *v1alpha1.PolicySpec) {
				s.MainContainers = []v1alpha1.ContainerName{"shiper"}
				s.PodSelector.MatchLabels = map[string]string{"team": "other"}
			})
			w.Policies, w.NotSelecting = w.Policies[:1], w.Policies[1:]
		}, v1alpha1.ReasonContainerNotFound, []string{
			"declare shiper in a policy that selects this pod alone: SidecarTerminationPolicy/p1 may declare it otherwise for another pod" + none}},
		"sidecar misspelled, full policy": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Name = "shiper"
			w.policy(asIs, append(slices.Repeat([]string{"other"}, 31), "shipper")...)
		}, v1alpha1.ReasonContainerNotFound, []string{
			"declare shiper in a policy that selects this pod alone: SidecarTerminationPolicy/p0 has no room for another name" + none}},
		"label misspelled": {func(w *fixture) {
			w.Pod.Pod.Labels = map[string]string{"team": "etl-jobs"}
			w.policy(func(s *v1alpha1.PolicySpec) { s.PodSelector.MatchLabels = map[string]string{"team": "elt-jobs"} }, "envoy")
			w.Policies, w.NotSelecting = nil, w.Policies
			w.Pod.Pod.Spec.Containers[1].Name = "envoy"
		}, v1alpha1.ReasonMayHang, []string{
			"let SidecarTerminationPolicy/p0 select the pod: if it is a misspelling, change etl-jobs to elt-jobs in the labels of the pod, or elt-jobs to etl-jobs in podSelector if no other pod has elt-jobs" + none}},
		"DryRun": {func(w *fixture) { w.policy(dryRun, "proxy") }, v1alpha1.ReasonDryRun, []string{
			"set enforcement to Enforce to let the policy act on every pod that it selects",
			`kubectl -n batch patch stp p0 --type=json -p '[{"op":"add","path":"/spec/enforcement","value":"Enforce"}]'`}},
		"DryRun while the pod hangs": {func(w *fixture) { w.live(time.Hour, 0); w.unmark(); w.policy(dryRun, "proxy") }, v1alpha1.ReasonDryRun, []string{
			"set enforcement to Enforce to let the policy act on every pod that it selects; or " + keeps,
			`kubectl -n batch patch stp p0 --type=json -p '[{"op":"add","path":"/spec/enforcement","value":"Enforce"}]'`, finish + " --sidecars proxy"}},
		"DryRun of a cluster policy": {func(w *fixture) {
			w.policy(dryRun, "proxy")
			w.Policies[0].Ref = resolve.PolicyRef{Kind: resolve.KindCluster, Name: "p0"}
		}, v1alpha1.ReasonDryRun, []string{
			"set enforcement to Enforce to let the policy act on every pod that it selects",
			`kubectl patch cstp p0 --type=json -p '[{"op":"add","path":"/spec/enforcement","value":"Enforce"}]'`}},
		"wrong name in an annotation, beside a policy": {func(w *fixture) { w.policy(asIs, "proxy"); w.list("other") }, v1alpha1.ReasonContainerNotFound, []string{
			"correct the annotation" + none}},
		"pod opted out": {func(w *fixture) {
			w.runs(plan.NodeReal)
			w.policy(asIs, "proxy")
			w.Pod.Pod.Labels[v1alpha1.LabelIgnore] = "true"
		}, v1alpha1.ReasonOptedOut, []string{
			"remove the label if the operator should end the pod's sidecars", "kubectl -n batch label pod job sidecartermination.dev/ignore-"}},
		"namespace opted out": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.NamespaceLabels = map[string]string{v1alpha1.LabelIgnore: "true"}
		}, v1alpha1.ReasonOptedOut, []string{
			"remove the label if the operator should end the sidecars of every pod of the namespace", "kubectl label namespace batch sidecartermination.dev/ignore-"}},
		"sidecars unknown": {func(*fixture) {}, v1alpha1.ReasonMayHang, []string{
			"list the sidecars under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers",
			"kubectl explain sidecarterminationpolicy.spec"}},
		"only sidecars": {func(w *fixture) { w.policy(asIs, "main", "proxy") }, v1alpha1.ReasonNoMainContainer, []string{
			"list the main containers under mainContainers of a policy that selects the pod and takes precedence", "kubectl -n batch edit stp p0"}},
		"restartPolicy Always": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}, v1alpha1.ReasonRestartPolicyAlways, []string{"if the pod should end, set restartPolicy to Never or OnFailure" + none}},
		"label of the namespace without effect": {func(w *fixture) {
			w.NamespaceLabels = map[string]string{v1alpha1.LabelIgnore: "yes"}
		}, v1alpha1.ReasonIneffectiveLabel, []string{
			`set the value to "true"`, "kubectl label namespace batch --overwrite sidecartermination.dev/ignore=true"}},
		"invalid annotation": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.policy(asIs, "proxy")
			w.InvalidAnnotation = "annotation is no JSON"
		}, v1alpha1.ReasonInvalidAnnotation, []string{
			"remove the annotation, which makes the operator end the sidecars, possibly for the second time",
			"kubectl -n batch annotate pod job sidecartermination.dev/image-swap-"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			found := explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings
			keepsRoles(t, w, found)
			i := slices.IndexFunc(found, func(f explain.Finding) bool { return f.Reason == tc.reason })
			if i < 0 {
				t.Fatalf("no finding %s: %+v", tc.reason, found)
			}
			if diff := cmp.Diff(tc.want, append([]string{found[i].Hint}, found[i].Commands...)); diff != "" {
				t.Errorf("finding %q (-want +got):\n%s", found[i].Message, diff)
			}
		})
	}
}

// What several pods have in common has one command, and no hint for one pod.
func TestHintForSeveralPods(t *testing.T) {
	for name, tc := range map[string]struct {
		change        func(w *fixture)
		hint, command string
	}{
		"hanging": {func(*fixture) {},
			"only if it is a sidecar, list it under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers", settings.PluginName + " lint -n batch -o policy"},
		"stuck": {uncovered(only(v1alpha1.ModeImage)), "use an image that covers the command; or set mode to Auto", "kubectl -n batch edit stp p0"},
	} {
		w := newFixture()
		tc.change(w)
		w.live(time.Hour, 0)
		found := explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings[0]
		got := found.OfSeveral()
		if !strings.HasPrefix(found.Hint, got.Hint+"; or finish the pod now") || got.Hint != tc.hint || !slices.Equal(got.Commands, []string{tc.command}) {
			t.Errorf("%s: %+v becomes %+v", name, found, got)
		}
	}
}

// keepsRoles applies each patch among the commands to its policy, and compares the roles that policies give the containers of three
// pods of the namespace: the fixture's, one with the names that the policies have, and one with all of these containers.
func keepsRoles(t *testing.T, w *fixture, findings []explain.Finding) {
	t.Helper()
	selecting, all := w.Policies, slices.Concat(w.Policies, w.NotSelecting)
	names := []string{"main"}
	for _, policy := range all {
		for _, sidecar := range policy.Spec.Sidecars {
			names = append(names, strings.ReplaceAll(sidecar.Name, "*", "x"))
		}
		for _, main := range policy.Spec.MainContainers {
			names = append(names, string(main))
		}
	}
	named, both := w.Pod.Pod.DeepCopy(), w.Pod.Pod.DeepCopy()
	named.Spec.Containers = nil
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		container := corev1.Container{Name: name}
		named.Spec.Containers = append(named.Spec.Containers, container)
		if !slices.ContainsFunc(both.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }) {
			both.Spec.Containers = append(both.Spec.Containers, container)
		}
	}
	for _, f := range findings {
		for _, command := range f.Commands {
			for i, policy := range all {
				_, patch, isPatch := strings.Cut(command, " patch ")
				if target, text, _ := strings.Cut(patch, " --type=json -p "); isPatch && strings.HasSuffix(target, " "+policy.Ref.Name) {
					patched := slices.Clone(all)
					patched[i].Spec = applyPatch(t, policy.Spec, strings.ReplaceAll(strings.Trim(text, "'"), `'\''`, "'"))
					lostNoRole(t, command, w.Pod.Pod, selecting, patched[:len(selecting)])
					lostNoRole(t, command, named, all, patched)
					if len(policy.Spec.MainContainers) == 0 { // no pod has a main container and a sidecar with almost its name
						lostNoRole(t, command, both, all, patched)
					}
				}
			}
		}
	}
}

// lostNoRole checks that each container that a policy declared still has its role.
func lostNoRole(t *testing.T, command string, pod *corev1.Pod, before, after []resolve.Policy) {
	t.Helper()
	old, patched := resolve.Resolve(pod, before, resolve.Options{}).Enforced, resolve.Resolve(pod, after, resolve.Options{}).Enforced
	for _, sidecar := range old.Sidecars {
		if patched.Sidecar(sidecar.Container) == nil {
			t.Errorf("after %s, container %s is no sidecar", command, sidecar.Container)
		}
	}
	for main := range old.MainPolicies {
		if !slices.Contains(patched.Mains, main) {
			t.Errorf("after %s, container %s is no main container", command, main)
		}
	}
}

func applyPatch(t *testing.T, spec *v1alpha1.PolicySpec, patch string) *v1alpha1.PolicySpec {
	t.Helper()
	operations, err := jsonpatch.DecodePatch([]byte(patch))
	policy, encodeErr := json.Marshal(map[string]any{"spec": spec})
	policy, applyErr := operations.Apply(policy)
	var patched struct{ Spec v1alpha1.PolicySpec }
	if err := errors.Join(err, encodeErr, applyErr, json.Unmarshal(policy, &patched)); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	return &patched.Spec
}
