// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// remark is what findings with a reason have in common, where the pod does not matter.
type remark struct {
	// hint says what to do next. A mode that is unusable for the reason becomes usable that way. A reason whose findings have hints of
	// their own has none here.
	hint string
	// check is true if checkCommand may say more, and edit if a change of the finding's policy can follow the hint.
	check, edit bool
	// lint is true for declarations that are missing, ineffective, or have unintended effects: lint shows these findings.
	lint bool
	// ofPod is true if the finding on a pod does not concern each policy that selects it.
	ofPod bool
}

// installOpenKruise begins hints that an operator for single namespaces cannot follow.
const installOpenKruise = "install OpenKruise"

// about has the remarks on reasons.
var about = map[v1alpha1.Reason]remark{
	v1alpha1.ReasonRestartPolicyAlways:         {hint: "if the pod should end, set restartPolicy to Never or OnFailure", lint: true},
	v1alpha1.ReasonNoMainContainer:             {hint: "list the main containers under mainContainers of a policy that selects the pod and takes precedence", lint: true, edit: true},
	v1alpha1.ReasonInvalidSidecars:             {hint: "correct the annotation: at most 32 names of regular containers of the pod, separated by commas", lint: true, ofPod: true},
	v1alpha1.ReasonOptedOut:                    {hint: "remove the label if the operator should end the pod's sidecars"},
	v1alpha1.ReasonJobsForbidden:               {hint: "install the operator with component include-injected, or with the chart's value includeInjected", check: true},
	v1alpha1.ReasonInvalidEnv:                  {hint: "set a valid value instead of this one, valueFrom or envFrom, or name the container in a policy", lint: true},
	v1alpha1.ReasonInvalidAnnotation:           {hint: "remove the annotation, which makes the operator end the sidecars, possibly for the second time"},
	v1alpha1.ReasonPodTooLarge:                 {hint: "split the pod"},
	v1alpha1.ReasonInternalError:               {hint: "report the messages about this pod in the operator's log"},
	v1alpha1.ReasonDryRun:                      {hint: "set enforcement to Enforce to let the policy act on every pod that it selects", edit: true},
	v1alpha1.ReasonNodeKindUnknown:             {hint: "set --node-kind of the operator to the kind of all nodes of its namespaces, or set an image that covers the command", check: true},
	v1alpha1.ReasonNamespaceNotWatched:         {hint: "add the namespace to --watch-namespaces of the operator and grant it the permissions there, or move the workload", lint: true, check: true},
	v1alpha1.ReasonNoQuickExitImage:            {hint: "set image in the policy's entry for the sidecar, or the operator's --quick-exit-image", edit: true},
	v1alpha1.ReasonImageNotAllowed:             {hint: "use an image that --allowed-quick-exit-image of the operator lists, or remove image", check: true},
	v1alpha1.ReasonCRRUnavailable:              {hint: installOpenKruise, check: true},
	v1alpha1.ReasonModeDisabled:                {hint: "run the operator with the flag that the message names set to Enabled", check: true},
	v1alpha1.ReasonGracePeriodTooLong:          {hint: "shorten terminationGracePeriodSeconds, or declare the sidecar in a policy"},
	v1alpha1.ReasonOutcomeNotDecided:           {hint: "install the admission policies of config/default or of the Helm chart", check: true},
	v1alpha1.ReasonUnknownSetting:              {hint: "upgrade the operator, which is older than the policy's CRD, or set the field to another value", edit: true},
	v1alpha1.ReasonMirrorPod:                   {hint: "the operator cannot write to a static pod: run its work as a Job"},
	v1alpha1.ReasonExitCodesRespected:          {hint: "set exitCodePolicy to Ignore for the sidecar", edit: true},
	v1alpha1.ReasonRestartsAllContainers:       {hint: "remove the rule RestartAllContainers from the sidecar"},
	v1alpha1.ReasonBackoffLimitRisk:            {hint: "set mode to Auto, or restartPolicy to Never, or raise backoffLimit", lint: true, edit: true},
	v1alpha1.ReasonDeadlineRisk:                {hint: "set mode to PodPhase, which ends the pod before its sidecars, or raise activeDeadlineSeconds of the Job", edit: true},
	v1alpha1.ReasonOrderNotKept:                {hint: installOpenKruise + ", or set an image that covers the command, or drainSeconds for the sidecars that must end last", lint: true, edit: true},
	v1alpha1.ReasonCommandNotCovered:           {hint: "use an image that covers the command", lint: true, edit: true},
	v1alpha1.ReasonWriteRefused:                {hint: "grant the operator's ServiceAccount the permission that the message names, or exempt it from the admission policy or webhook that the message names", check: true},
	v1alpha1.ReasonIneffectiveEnv:              {hint: "set " + v1alpha1.EnvTerminate + " to \"true\" as well, or name the container in a policy", lint: true},
	v1alpha1.ReasonIneffectiveLabel:            {hint: "correct the key or the value", lint: true, ofPod: true},
	v1alpha1.ReasonContainerNotFound:           {hint: "if a name is wrong, add the right one; remove an entry only if no pod has that container", ofPod: true, edit: true},
	v1alpha1.ReasonInvalidSelector:             {hint: "correct the selector: its operators are In, NotIn, Exists and DoesNotExist", lint: true, edit: true},
	v1alpha1.ReasonStuck:                       {hint: "read the log of the sidecar and the failed attempts"},
	v1alpha1.ReasonAttemptFailed:               {hint: "if the sidecar needs more time, raise terminationDeadlineSeconds"},
	v1alpha1.ReasonDeletedWhileEnding:          {hint: "if the sidecars need their token, log or grace period, set ttlSecondsAfterFinished to more than terminationGracePeriodSeconds, and no history limit to 0", lint: true},
	v1alpha1.ReasonForeignFinalizer:            {hint: "if the sidecars need their grace period, do not delete the pod before its sidecars have ended (ttlSecondsAfterFinished, history limits, workflow engines), or use mode Image or CRR, which do not use the phase", lint: true},
	v1alpha1.ReasonOverdue:                     {hint: "check that the operator is running and has its permissions", check: true},
	v1alpha1.ReasonMayHang:                     {hint: "list it under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers", lint: true, ofPod: true},
	v1alpha1.ReasonInvalidManifest:             {hint: "correct the field that the message names", lint: true},
	v1alpha1.ReasonNotChecked:                  {hint: "if the object creates no pods that finish, exclude it with --ignore-kind KIND.GROUP; otherwise lint a manifest of its pods", lint: true},
	v1alpha1.ReasonSidecarMatchesFailurePolicy: {lint: true},
}

// checkCommand examines the operator and OpenKruise.
const checkCommand = settings.PluginName + " check"

// advise replaces the hint of a finding by one that fits the situation of the pod, and adds commands.
func (x *explainer) advise(f *Finding) {
	pod := x.Pod.Pod
	f.Hint = x.hint(f.Reason)
	switch f.Reason {
	case v1alpha1.ReasonMayHang:
		x.adviseDeclaration(f)
	case v1alpha1.ReasonInternalError:
		x.command(f, "kubectl -n %s logs -l app.kubernetes.io/name=%s --tail=-1", settings.Namespace, settings.Name)
	case v1alpha1.ReasonStuck:
		x.command(f, "kubectl -n %s logs %s --all-containers --prefix --tail=20", pod.Namespace, pod.Name)
	case v1alpha1.ReasonInvalidAnnotation:
		x.command(f, "kubectl -n %s annotate pod %s %s-", pod.Namespace, pod.Name, v1alpha1.AnnotationImageSwap)
	}
	if about[f.Reason].check {
		x.command(f, checkCommand)
	}
	stuck := x.decision.Stage == plan.StageStuck && f.Reason == x.decision.Reason
	if f.Severity != SeverityProblem || !stuck && f.Reason != v1alpha1.ReasonOverdue {
		return
	}
	for _, sidecar := range x.view.Sidecars {
		options := plan.ModeOptions(x.snapshot(), sidecar)
		reason, _ := plan.WhyUnusable(sidecar, options)
		if reason == f.Reason && !slices.ContainsFunc(options, plan.ModeOption.Usable) {
			x.adviseMode(f, options)
			break
		}
	}
	x.adviseFinish(f, x.view)
}

// hint returns what to do about the reason. An operator for single namespaces uses no OpenKruise.
func (x *explainer) hint(reason v1alpha1.Reason) string {
	hint := about[reason].hint
	if x.operator.Capabilities.NamespacesOnly {
		hint = strings.Replace(hint, installOpenKruise, "install the operator for the whole cluster", 1)
	}
	return hint
}

// command adds a command, unless the finding is on manifests.
func (x *explainer) command(f *Finding, format string, arguments ...any) {
	if command := fmt.Sprintf(format, arguments...); !x.cluster.Offline && !slices.Contains(f.Commands, command) {
		f.Commands = append(f.Commands, command)
	}
}

// patch adds a command that adds a value to the policy. Other pods use the policy, too: no command takes a name from it.
func (x *explainer) patch(f *Finding, policy resolve.PolicyRef, path string, value any) {
	// A patch can be encoded.
	encoded, _ := json.Marshal([]any{map[string]any{"op": "add", "path": path, "value": value}})
	x.command(f, "kubectl %s --type=json -p '%s'", kubectlTarget("patch", policy), strings.ReplaceAll(string(encoded), "'", `'\''`))
}

// kubectlTarget returns kubectl's arguments for the verb and the policy.
func kubectlTarget(verb string, policy resolve.PolicyRef) string {
	if policy.Kind == resolve.KindNamespaced {
		return fmt.Sprintf("-n %s %s stp %s", policy.Namespace, verb, policy.Name)
	}
	return verb + " cstp " + policy.Name
}

// adviseFinish adds the command that finishes the pod with its outcome, if the command can, given these roles.
func (x *explainer) adviseFinish(f *Finding, view resolve.View, sidecars ...string) {
	snapshot := x.snapshot()
	snapshot.View = view
	can := func(mode v1alpha1.Mode) bool { return len(plan.Finish(snapshot, mode, x.now).Writes) > 0 }
	command := fmt.Sprintf("%s finish pod/%s -n %s", settings.PluginName, x.Pod.Pod.Name, x.Pod.Pod.Namespace)
	if len(sidecars) > 0 {
		command += " --sidecars " + strings.Join(sidecars, ",")
	}
	switch {
	case x.Template || x.cluster.Offline:
		return
	case can(v1alpha1.ModePodPhase):
	case can(v1alpha1.ModeImage):
		command += " --mode=Image"
	default:
		return
	}
	f.finish = command
}

// adviseDeclaration says in which policy to declare a container that may keep the pod from finishing.
func (x *explainer) adviseDeclaration(f *Finding) {
	isCause := func(entry missingEntry) bool {
		// A main container that is spelled correctly makes all others sidecars.
		return entry.field == fieldMains || f.Container == entry.meant || f.Container == "" && x.knownBy(entry.meant) == ""
	}
	for _, missing := range x.missing {
		if i := slices.IndexFunc(missing.misspelled, isCause); i >= 0 {
			x.adviseSpelling(f, missing.policy, missing.misspelled[i])
			return
		}
	}
	if f.Container == "" {
		f.Hint = "list the sidecars under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers"
		x.command(f, "kubectl explain sidecarterminationpolicy.spec")
		return
	}
	for _, policy := range x.NotSelecting {
		if n := whyNotSelecting(policy, &x.Pod, []string{f.Container}); n.relevant && n.hint != "" {
			f.Hint = fmt.Sprintf("let %s select the pod: %s", policy.Ref, n.hint)
			return
		}
	}
	x.adviseNewEntry(f)
}

// adviseNewEntry says in which policy to add the container, and how to finish the pod meanwhile. A container that is no known sidecar may be at
// work: no command ends it before the reader has named it.
func (x *explainer) adviseNewEntry(f *Finding) {
	i := slices.IndexFunc(x.Policies, func(p resolve.Policy) bool {
		return p.Ref.Kind == resolve.KindNamespaced && len(p.Spec.Sidecars) > 0 && p.Spec.Enforcement.Acts() && x.whyNotAdd(p, fieldSidecars, f.Container) == ""
	})
	sidecar, known := f.Container, x.knownBy(f.Container) != ""
	if i < 0 {
		x.command(f, "%s lint -n %s -o policy", settings.PluginName, x.Pod.Pod.Namespace)
	} else {
		ref := x.Policies[i].Ref
		f.Hint = fmt.Sprintf("add it to spec.sidecars of %s, or list all containers that exit by themselves under mainContainers of a policy", ref)
		if known {
			x.patch(f, ref, "/spec/sidecars/-", map[string]string{"name": f.Container})
		} else {
			x.command(f, "kubectl %s", kubectlTarget("edit", ref))
		}
	}
	if !known {
		f.Hint, sidecar = "only if it is a sidecar, "+f.Hint, "SIDECAR"
	}
	options := x.operator.Resolve
	options.Sidecars = []string{f.Container}
	x.adviseFinish(f, resolve.Resolve(x.Pod.Pod, x.Policies, options).Enforced, sidecar)
}

// adviseSpelling says how to add the name that an entry of a policy is a misspelling of for this pod. The entry stays: the name may be
// right for other pods.
func (x *explainer) adviseSpelling(f *Finding, ref resolve.PolicyRef, entry missingEntry) {
	policy := x.policy(ref)
	if why := x.whyNotAdd(*policy, entry.field, entry.meant); why != "" {
		f.Hint = fmt.Sprintf("declare %s in a policy that selects this pod alone: %s", entry.meant, why)
		return
	}
	f.policy, f.Hint = ref, fmt.Sprintf("add %s to spec.%s of %s; the entry %s stays, because other pods may have that container", entry.meant, entry.field, ref, entry.name)
	var value any = entry.meant
	if entry.field == fieldSidecars {
		i := slices.IndexFunc(policy.Spec.Sidecars, func(s v1alpha1.Sidecar) bool { return s.Name == entry.name })
		copied := policy.Spec.Sidecars[i]
		copied.Name = entry.meant
		value = copied
	}
	x.patch(f, ref, "/spec/"+entry.field+"/-", value)
}

// maxEntries is the most names that a field of a policy can have.
const maxEntries = 32

// whyNotAdd says why a name cannot be added to the field of the policy without taking a role from a container of another pod, or nothing.
// Policies of other namespaces do not matter: they take precedence over cluster policies.
func (x *explainer) whyNotAdd(policy resolve.Policy, field, name string) string {
	if len(policy.Spec.Sidecars)+len(policy.Spec.MainContainers) >= maxEntries {
		return fmt.Sprintf("%s has no room for another name", policy.Ref)
	}
	for _, other := range slices.Concat(x.Policies, x.NotSelecting) {
		named := func(s v1alpha1.Sidecar) bool { return resolve.Matches(s.Name, name) }
		// A policy with mainContainers gives every container a role.
		if other.Ref != policy.Ref && (len(other.Spec.MainContainers) > 0 || field == fieldMains && slices.ContainsFunc(other.Spec.Sidecars, named)) {
			return fmt.Sprintf("%s may declare it otherwise for another pod", other.Ref)
		}
	}
	return ""
}

// maxDeadlineSeconds is the greatest terminationDeadlineSeconds of a policy.
const maxDeadlineSeconds = 3600

// adviseAfterFailure says what may help after a failed attempt, by its mode and by the state of the container.
func (x *explainer) adviseAfterFailure(f *Finding, mode v1alpha1.Mode) {
	state, sidecar := x.state(x.Pod.Pod.Status.ContainerStatuses, f.Container), x.view.Sidecar(f.Container)
	switch {
	case state == nil || sidecar == nil:
	case mode == v1alpha1.ModeImage && state.Waiting != nil:
		f.Hint = fmt.Sprintf("check the name of quick-exit image %s, whether the node may pull it, and whether it has the container's command", sidecar.Image)
		x.command(f, "kubectl -n %s describe pod %s", x.Pod.Pod.Namespace, x.Pod.Pod.Name)
	case sidecar.Policy != nil:
		f.Hint = fmt.Sprintf("if the sidecar needs more time, raise terminationDeadlineSeconds in %s", sidecar.Policy)
		x.patch(f, *sidecar.Policy, "/spec/terminationDeadlineSeconds", min(2*int64(sidecar.Timeout/time.Second), maxDeadlineSeconds))
	}
}

// adviseMode says what makes one of the modes usable for the sidecar. A single mode is a declared one.
func (x *explainer) adviseMode(f *Finding, options []plan.ModeOption) {
	var ways []string
	for _, option := range options {
		if way := x.hint(option.Reason); way != "" && !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	if len(options) == 1 {
		ways = append(ways, "set mode to Auto")
	}
	f.Hint, f.policy = strings.Join(ways, orElse), x.policyOf(f.Container)
	if f.Reason == v1alpha1.ReasonNoUsableMode {
		x.command(f, checkCommand)
	}
}
