// SPDX-License-Identifier: Apache-2.0

package finish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// finisher finishes pods one after the other and collects the results.
type finisher struct {
	*options
	client client.Client
	source *source.Source
	result result
}

// finish finishes one pod. It reads the pod first if it has only its name. A kubelet may report several changes of a pod within a
// second, so that a write often meets a newer pod: finish then reads the pod and decides again, up to three times.
func (f *finisher) finish(ctx context.Context, pod *corev1.Pod) {
	var r podResult
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		r = podResult{Namespace: pod.Namespace, Name: pod.Name, Mode: f.mode}
		err := f.try(ctx, pod, &r)
		if apierrors.IsConflict(err) {
			pod.ResourceVersion = ""
		}
		return err
	})
	if err != nil {
		r.Outcome, r.Reason, r.Message, r.Hint = failed, "", err.Error(), f.failureHint(err)
	}
	f.result.add(r)
}

// try decides about the pod, carries the decision out and describes it in the result. A result without actions says what the user
// can do.
func (f *finisher) try(ctx context.Context, pod *corev1.Pod, r *podResult) error {
	if pod.ResourceVersion == "" {
		if err := f.read(ctx, pod); err != nil {
			return err
		}
	}
	input, err := f.source.Pod(ctx, pod)
	if err != nil {
		return err
	}
	decision, inDryRun, why := f.decide(input, f.source.Settings.Decisions)
	if why.reason != "" {
		r.Outcome, r.Reason, r.Message = refused, why.reason, why.message
		return nil
	}
	if len(decision.Writes) > 0 {
		r.describe(decision)
		return f.act(ctx, pod, decision, r.Message)
	}
	r.Outcome, r.Reason, r.Message, r.Hint = refused, decision.Reason, decision.Message, hintOf(decision.Reason, inDryRun)
	if decision.Reason == v1alpha1.ReasonPodFinished || decision.Reason == v1alpha1.ReasonTerminated {
		r.Outcome = unchanged
	}
	return nil
}

// read reads the pod. It returns an error if the pod was read before and another one has its name now.
func (f *finisher) read(ctx context.Context, pod *corev1.Pod) error {
	var current corev1.Pod
	if err := f.client.Get(ctx, client.ObjectKeyFromObject(pod), &current); err != nil {
		return fmt.Errorf("get pod: %w", err)
	}
	if pod.UID != "" && pod.UID != current.UID {
		return errors.New("the pod is gone, and another one has its name")
	}
	*pod = current
	return nil
}

// refusal is why the command asks for no decision about a pod. It is zero if it asks for one.
type refusal struct {
	reason  v1alpha1.Reason
	message string
}

// decide returns the decision and the sidecars to name that policies with enforcement DryRun declare, or why it asks for no decision.
func (o *options) decide(pod explain.Pod, operator settings.Decisions) (decision plan.Decision, inDryRun []string, why refusal) {
	// A person may finish a pod that has opted out.
	operator.Resolve.Sidecars, operator.Resolve.NoOptOut = o.sidecars, true
	resolution := pod.Resolve(operator.Resolve)
	if why = o.checkSidecars(pod, resolution.Enforced); why.reason != "" {
		return decision, nil, why
	}
	if resolution.DryRun != nil {
		for _, sidecar := range resolution.DryRun.Sidecars {
			if mainPolicy(pod, resolution.Enforced, sidecar.Container) == nil {
				inDryRun = append(inDryRun, sidecar.Container)
			}
		}
	}
	return plan.Finish(pod.Snapshot(resolution.Enforced, operator.Capabilities), o.mode, o.now()), inDryRun, why
}

// checkSidecars returns why the containers of --sidecars cannot be sidecars of the pod, or nothing.
func (o *options) checkSidecars(pod explain.Pod, enforced resolve.View) refusal {
	regular := explain.RegularContainers(pod.Pod)
	for _, name := range o.sidecars {
		if !slices.Contains(regular, name) {
			message := fmt.Sprintf("--sidecars names %s, which is no regular container of the pod", name)
			if meant := explain.Similar(name, regular); meant != "" {
				message += "; did you mean " + meant + "?"
			}
			return refusal{v1alpha1.ReasonContainerNotFound, message}
		}
		if policy := mainPolicy(pod, enforced, name); policy != nil {
			return refusal{v1alpha1.ReasonOverridden, fmt.Sprintf("--sidecars names %s, which %s declares a main container", name, policy)}
		}
	}
	return refusal{}
}

// mainPolicy returns the policy that declares the container a main container, or nil. If no enforced policy gives the container a role, one in
// DryRun counts, too: what somebody has declared a main container is not ended by hand.
func mainPolicy(pod explain.Pod, enforced resolve.View, name string) *resolve.PolicyRef {
	if sidecar := enforced.Sidecar(name); sidecar != nil && sidecar.Policy != nil {
		return nil
	}
	if policy, declared := enforced.MainPolicies[name]; declared {
		return &policy
	}
	i := slices.IndexFunc(pod.Policies, func(p resolve.Policy) bool {
		return p.Role(pod.Pod, name, resolve.Options{}) == resolve.RoleMain
	})
	if i < 0 {
		return nil
	}
	return &pod.Policies[i].Ref
}

// hintOf says what the user can do about a decision without actions.
func hintOf(reason v1alpha1.Reason, inDryRun []string) string {
	switch reason {
	case v1alpha1.ReasonNoSidecar:
		if len(inDryRun) > 0 {
			return "name those that policies with enforcement DryRun declare: --sidecars " + strings.Join(inDryRun, ",")
		}
		return "name the sidecars with --sidecars"
	case v1alpha1.ReasonMainContainersRunning:
		return "if one of these is a sidecar, name it with --sidecars"
	case v1alpha1.ReasonVirtualNode, v1alpha1.ReasonExitCodesRespected, v1alpha1.ReasonGracePeriodTooLong:
		return "use --mode Image"
	}
	return ""
}

// act carries the decision out and records it as an event. A missing event is no failure: the pod is finished.
func (f *finisher) act(ctx context.Context, pod *corev1.Pod, decision plan.Decision, message string) error {
	for _, write := range decision.Writes {
		if err := f.execute(ctx, pod, write); err != nil {
			return err
		}
	}
	note := fmt.Sprintf("%s, as requested with: %s finish", message, settings.PluginName)
	if err := f.client.Create(ctx, f.event(pod, note)); err != nil {
		f.result.note("no event records the change: " + err.Error())
	}
	return nil
}

// execute writes what the operator would write. The answer to a mark has the phase.
func (f *finisher) execute(ctx context.Context, pod *corev1.Pod, write plan.Write) error {
	var by terminator.Terminator = &podphase.Terminator{Client: f.client}
	if write.Mode == v1alpha1.ModeImage {
		by = &image.Terminator{Client: f.client, Clock: clock.RealClock{}}
	}
	applied, err := by.Execute(ctx, pod, write)
	switch {
	case err != nil || applied.Answer != nil:
		return cmp.Or(err, applied.Answer)
	case applied.Pod == nil || plan.HasTerminalPhase(applied.Pod):
		return nil
	}
	return errors.New("the pod was marked, but its phase did not change: it has been disrupted since it was read; run the command again")
}

func (o *options) event(pod *corev1.Pod, note string) *eventsv1.Event {
	now := o.now()
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: util.GenerateEventName(pod.Name, now.UnixNano())},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: settings.PluginProgram,
		ReportingInstance:   settings.PluginProgram + "-" + settings.Version(),
		Type:                corev1.EventTypeNormal,
		Reason:              string(v1alpha1.ReasonFinishedByUser),
		Action:              settings.EventAction,
		Note:                safetext.Truncate(note, safetext.MaxEventNote),
		Regarding: corev1.ObjectReference{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
	}
}

// failureHint says what the user can do about an error. The message of a denied write names what denies it: RBAC, an admission
// policy or a webhook.
func (o *options) failureHint(err error) string {
	switch {
	case apierrors.IsConflict(err):
		return "the pod has changed each time since it was read; run the command again"
	case apierrors.IsForbidden(err) && o.mode == v1alpha1.ModePodPhase:
		return "if you lack a permission, ask an administrator to bind the ClusterRole of the operator whose name ends in pod-finisher to you in the namespace"
	}
	return ""
}
