// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// scripted is a pod with the containers main and proxy to which things happen step by step.
type scripted struct {
	*bench
	clock  *clocktesting.FakePassiveClock
	cache  podStore
	live   *liveReads
	policy *v1alpha1.SidecarTerminationPolicy
	pod    *corev1.Pod
	delay  time.Duration // after the last reconcile
	allow  func()        // ends a denial
	trace  []string
	// outcome is the last one in the trace.
	outcome string
}

// liveReads counts the reads of pods from the API server, and fails them while it is told to.
type liveReads struct {
	client.Reader
	number int
	fails  bool
}

func (l *liveReads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if l.number++; l.fails {
		return lost{}
	}
	return l.Reader.Get(ctx, key, object, options...)
}

// unanswered is a client whose status patches are applied and fail with a lost answer.
type unanswered struct{ client.Client }

func (u unanswered) Status() client.SubResourceWriter { return unansweredWriter{u.Client.Status()} }

type unansweredWriter struct{ client.SubResourceWriter }

func (u unansweredWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return errors.Join(u.SubResourceWriter.Patch(ctx, object, patch, options...), lost{})
}

// policySteps change the policy, before its creation or as a step. podVariants change the pod before its creation.
var (
	policySteps = map[string]func(*v1alpha1.PolicySpec){
		"PodPhase": mode(v1alpha1.ModePodPhase, ""), "CRR": mode(v1alpha1.ModeCRR, ""), "Image": mode(v1alpha1.ModeImage, ""), "Auto": mode(v1alpha1.ModeAuto, ""),
		"Respect": func(s *v1alpha1.PolicySpec) { s.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect },
		"alone":   func(s *v1alpha1.PolicySpec) { s.Fallback = v1alpha1.FallbackDisabled },
		"DryRun":  func(s *v1alpha1.PolicySpec) { s.Enforcement = v1alpha1.EnforcementDryRun },
		"drain":   func(s *v1alpha1.PolicySpec) { s.DrainSeconds = ptr.To[int32](5) },
		"web":     func(s *v1alpha1.PolicySpec) { s.PodSelector.MatchLabels = map[string]string{"team": "web"} },
		"+logger": func(s *v1alpha1.PolicySpec) { s.Sidecars = append(s.Sidecars, v1alpha1.Sidecar{Name: "logger"}) },
		"=logger": func(s *v1alpha1.PolicySpec) { s.Sidecars = []v1alpha1.Sidecar{{Name: "logger"}} },
		"=all": func(s *v1alpha1.PolicySpec) {
			s.Sidecars = []v1alpha1.Sidecar{{Name: "logger"}, {Name: "main"}, {Name: "proxy"}}
		},
	}
	podVariants = map[string]func(*corev1.Pod){
		"":            func(*corev1.Pod) {},
		"OnFailure":   func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure },
		"unscheduled": func(p *corev1.Pod) { p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending} },
		"finished":    func(p *corev1.Pod) { podtest.MainDone(p); podtest.SidecarDone(p); podtest.Succeeded(p) },
		"null record": recorded("null"),
		"long record": recorded("{}" + strings.Repeat(" ", 64<<10)),
		"record and variable": func(p *corev1.Pod) {
			recorded("x")(p)
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
		},
		"large": func(p *corev1.Pod) {
			for i := range plan.MaxContainers {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("more-%d", i), Image: "i"})
			}
		},
		"main rules":  func(p *corev1.Pod) { addRestartRule(&p.Spec.Containers[0]) },
		"proxy rules": func(p *corev1.Pod) { addRestartRule(&p.Spec.Containers[1]) },
		"proxy restarts all": func(p *corev1.Pod) {
			addRestartRule(&p.Spec.Containers[1])
			p.Spec.Containers[1].RestartPolicyRules[0].Action = corev1.ContainerRestartRuleActionRestartAllContainers
		},
		"logger ended": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "logger", Image: "logger:v1"})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, podtest.Ended("logger", 0))
		},
	}
)

// recorded sets the record of swapped images.
func recorded(record string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: record} }
}

// addRestartRule makes the kubelet restart the container after exit code 42.
func addRestartRule(container *corev1.Container) {
	container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
	container.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
}

// mainExits ends the main container.
func mainExits(code int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0] = podtest.Ended("main", code) }
}

// sidecarExits ends the sidecar, and with it the pod in the kubelet's view.
func sidecarExits(code int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[1], pod.Status.Phase = podtest.Ended("proxy", code), corev1.PodFailed
	}
}

// steps are what else can happen: to the pod, to the operator and to the API server.
var steps = map[string]func(*scripted){
	"main":    func(s *scripted) { s.change(s.pod, mainExits(0)) },
	"failure": func(s *scripted) { s.change(s.pod, mainExits(3)) },
	"proxy":   func(s *scripted) { s.change(s.pod, sidecarExits(143)) },
	"ended": func(s *scripted) {
		s.change(s.pod, func(p *corev1.Pod) { p.Status.ContainerStatuses[1] = podtest.Ended("proxy", 143) })
	},
	"early": func(s *scripted) {
		s.change(s.pod, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[1] = podtest.Ended("proxy", 0)
			p.Status.ContainerStatuses[1].State.Terminated.FinishedAt = metav1.NewTime(podtest.Noon.Add(-time.Minute))
		})
	},
	"report":  func(s *scripted) { s.change(s.pod, func(p *corev1.Pod) { p.Status.Message = "unchanged" }) },
	"delete":  func(s *scripted) { s.remove(s.pod) },
	"again":   func(s *scripted) { s.pod = s.newPod("job-1") },
	"release": func(s *scripted) { s.remove(s.policy) },
	"now":     (*scripted).now,
	"later":   func(s *scripted) { s.clock.SetTime(s.clock.Now().Add(s.delay)); s.now() },
	"stale":   func(s *scripted) { s.pods.reader.pods = pinned{s.cache, s.pod.DeepCopy()} },
	"unmarked": func(s *scripted) {
		pod := s.pod.DeepCopy()
		pod.ResourceVersion, pod.Status.Phase, pod.Annotations = "1", corev1.PodRunning, nil
		delete(pod.Labels, v1alpha1.LabelOutcome)
		s.pods.reader.pods = pinned{s.cache, pod}
	},
	"current": func(s *scripted) { s.pods.reader.pods = s.cache },
	"lose": func(s *scripted) {
		s.pods.terminators[v1alpha1.ModePodPhase] = &podphase.Terminator{Client: unanswered{s.policies.client}}
	},
	"answer": func(s *scripted) {
		s.pods.terminators[v1alpha1.ModePodPhase] = &podphase.Terminator{Client: s.policies.client}
	},
	"break":     func(s *scripted) { s.live.fails = true },
	"mend":      func(s *scripted) { s.live.fails = false },
	"denyMarks": func(s *scripted) { s.deny(s.pod, s.by, "pods/status") },
	"denySwaps": func(s *scripted) { s.deny(s.pod, byAdmissionPolicy(metav1.StatusReasonInvalid), "pods") },
	"denyAll":   func(s *scripted) { s.allow = s.deny(s.pod, s.by, "pods", "pods/status") },
	"allow":     func(s *scripted) { s.allow() },
	"strip": func(s *scripted) {
		s.install(strippingPolicy)
		testenv.Eventually(s.T, "marks are removed", func(ctx context.Context) error {
			pod := s.pod.DeepCopy()
			pod.Labels[v1alpha1.LabelOutcome] = "probe"
			if err := s.Status().Update(ctx, pod, client.DryRunAll); err != nil {
				return err
			}
			if pod.Labels[v1alpha1.LabelOutcome] != "" {
				return errors.New("the mark is there")
			}
			return nil
		})
	},
	"unmark": func(s *scripted) {
		s.pod.Labels, s.pod.Annotations = nil, nil
		s.update(s.pod)
	},
	"unrecord": func(s *scripted) {
		delete(s.pod.Annotations, v1alpha1.AnnotationImageSwap)
		s.update(s.pod)
	},
	"takeName": func(s *scripted) {
		s.create(&kruise.ContainerRecreateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "sidecar-termination-" + string(s.pod.UID) + "-1", Labels: map[string]string{"app.kubernetes.io/managed-by": settings.Name}},
			Spec:       kruise.ContainerRecreateRequestSpec{PodName: s.pod.Name, Containers: []kruise.ContainerRecreateRequestContainer{{Name: "proxy"}}},
		})
	},
	"events": func(s *scripted) {
		for _, event := range s.events.take() {
			s.trace = append(s.trace, strings.Fields(event)[1])
		}
	},
	"restart": func(s *scripted) { clear(s.pods.states.pods) },
	"lead":    func(s *scripted) { s.lead(podtest.Noon.Add(-time.Minute)) },
	"resume":  func(s *scripted) { s.lead(time.Now().Add(time.Hour)) },
	"install": func(s *scripted) { s.labelNamespace(undecidedLabel, ""); s.untilDecided() },
	"status": func(s *scripted) {
		s.summarise(s.policy)
		s.reload(s.policy)
		if degraded := meta.FindStatusCondition(s.policy.Status.Conditions, v1alpha1.ConditionDegraded); degraded != nil {
			s.trace = append(s.trace, degraded.Reason)
		}
	},
}

// marked reports whether the pod is marked and the admission policy has answered.
func marked(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationMainContainers] != "" }

// outcomeOf describes the phase and the marks of a pod, as in "Running proxy PodPhase Succeeded".
func outcomeOf(pod *corev1.Pod) string {
	words := []string{string(pod.Status.Phase)}
	for _, key := range []string{v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd, v1alpha1.AnnotationMainContainers} {
		if value := strings.TrimSuffix(pod.Annotations[key], "/"+string(pod.UID)); value != "" {
			words = append(words, value)
		}
	}
	if _, marked := pod.Labels[v1alpha1.LabelOutcome]; !marked {
		words = append(words, "unmarked")
	}
	return strings.Join(words, " ")
}

var writeNames = map[string]string{
	"PATCH pods/status": "mark", "PATCH pods": "swap", "POST containerrecreaterequests": "create", "DELETE containerrecreaterequests": "withdraw",
}

// pinned is a stale cache with one version of one pod.
type pinned struct {
	podStore
	pod *corev1.Pod
}

func (p pinned) Pod(key client.ObjectKey) (*corev1.Pod, error) {
	if key != keyOf(p.pod) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	return p.pod.DeepCopy(), nil
}

// now reconciles the pod. The trace gets the operator's writes and the delay.
func (s *scripted) now() {
	s.Helper()
	if _, stale := s.pods.reader.pods.(pinned); !stale {
		s.seen()
	}
	s.writes.forget()
	result, err := s.pods.Reconcile(s.Context(), ctrl.Request{NamespacedName: keyOf(s.pod)})
	for _, write := range s.writes.in(s.namespace) {
		s.trace = append(s.trace, writeNames[write])
	}
	if s.delay = result.RequeueAfter; err != nil {
		s.trace = append(s.trace, "error")
	} else if s.delay != 0 {
		s.trace = append(s.trace, "+"+s.delay.String())
	}
}

// lead does what a new leader does once, where another led until the time. The trace gets the pods that it enqueues.
func (s *scripted) lead(until time.Time) {
	s.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	missed := &missedFailures{reader: s.Client, states: s.pods.states}
	if err := missed.list(s.Context(), s.namespace, until, queue); err != nil {
		s.Fatal(err)
	}
	for range queue.Len() {
		request, _ := queue.Get()
		s.trace = append(s.trace, "enqueue "+request.Name)
	}
}

// seen waits until the cache has the pod as it is, or lacks it.
func (s *scripted) seen() {
	s.Helper()
	if err := s.Get(s.Context(), keyOf(s.pod), s.pod); err == nil {
		s.caughtUp(s.pod)
		return
	}
	testenv.Eventually(s.T, "the pod has left the cache", func(context.Context) error {
		if _, err := s.cache.Pod(keyOf(s.pod)); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// follow creates the policy and the pod, and makes the steps. The trace has what the operator does and each new outcome of the pod.
func (b *bench) follow(clock *clocktesting.FakePassiveClock, policy, variant, steps string) *scripted {
	b.Helper()
	if stale, ok := b.pods.reader.pods.(pinned); ok {
		b.pods.reader.pods = stale.podStore
	}
	s := &scripted{bench: b, clock: clock, cache: b.pods.reader.pods, live: &liveReads{Reader: b.Client}}
	b.pods.reader.live = s.live
	s.events.take()
	s.policy = b.newPolicy("mesh", func(spec *v1alpha1.PolicySpec) {
		for word := range strings.FieldsSeq(policy) {
			policySteps[word](spec)
		}
	})
	s.pod = b.newPod("job-1", podVariants[variant])
	s.outcome = outcomeOf(s.pod)
	s.do(steps)
	return s
}

// do makes more steps.
func (s *scripted) do(script string) {
	s.Helper()
	for step := range strings.FieldsSeq(script) {
		if change := policySteps[step]; change != nil {
			s.reload(s.policy)
			change(&s.policy.Spec.PolicySpec)
			s.update(s.policy)
		} else {
			steps[step](s)
		}
		if err := s.Get(s.Context(), keyOf(s.pod), s.pod); err == nil && outcomeOf(s.pod) != s.outcome {
			s.outcome = outcomeOf(s.pod)
			s.trace = append(s.trace, "("+s.outcome+")")
		}
	}
}

// checks compares the trace.
func (s *scripted) checks(want string) {
	s.Helper()
	if got := strings.Join(s.trace, " "); got != want {
		s.Errorf("trace\n%s, want\n%s", got, want)
	}
}

// script is a row of a table.
type script struct{ policy, pod, steps, trace string }

// onBenches runs rows by whether OpenKruise is there, each in its own namespace.
func onBenches[T any](t *testing.T, rows map[bool]map[string]T, test func(*bench, *clocktesting.FakePassiveClock, T)) {
	t.Helper()
	for withKruise, rows := range rows {
		t.Run(fmt.Sprintf("OpenKruise %t", withKruise), func(t *testing.T) {
			b, clock := newTimedBench(t, withKruise)
			for name, row := range rows {
				b.run(name, func() { test(b, clock, row) })
			}
		})
	}
}

const decided = "(Succeeded proxy PodPhase Decided)"

// Every mode, from a running main container to the end of the pod. Nothing is written twice.
func TestOutcomeOfEachMode(t *testing.T) {
	onBenches(t, map[bool]map[string]script{
		false: {
			"PodPhase":                 {"PodPhase", "", "now now main now proxy", "mark (Running proxy PodPhase Running) " + decided + " +2s"},
			"PodPhase, late":           {"PodPhase", "", "main now now now", "mark (Running proxy Succeeded) mark +1m0s " + decided + " +2s"},
			"PodPhase, drain":          {"PodPhase drain", "", "now main now later now proxy", "mark (Running proxy Running) (Running proxy Succeeded) +5s mark +1m0s " + decided + " +2s"},
			"PodPhase, main fails":     {"PodPhase", "", "now failure now now proxy", "mark (Running proxy PodPhase Running) mark +1m0s (Failed proxy Failed Running) +2s"},
			"PodPhase, restart rules":  {"PodPhase", "main rules", "now main now now proxy", "mark (Running proxy PodPhase Running) mark " + decided + " +2s"},
			"Auto, proxy restarts all": {"Auto", "proxy restarts all", "now main now now proxy", "mark (Running proxy PodPhase Running) mark " + decided + " +2s"},
			"Auto":                     {"Auto", "OnFailure", "now now main now proxy", "mark (Running proxy PodPhase Running) " + decided + " +2s"},
			"Auto, main fails":         {"Auto", "", "now failure now now proxy", "mark (Running proxy PodPhase Running) swap +1m0s +1m0s (Failed proxy PodPhase Running)"},
			"Image":                    {"Image", "", "now main now now proxy", "mark (Running proxy Running) (Running proxy Succeeded) swap +1m0s +1m0s (Succeeded proxy Decided)"},
			"Image, late":              {"Image", "", "main now now now proxy", "mark (Running proxy Succeeded) swap +1m0s +1m0s (Succeeded proxy Decided)"},
			"Image, Respect":           {"Image Respect", "", "now main now now proxy", "swap +1m0s +1m0s (Failed unmarked)"},
			"Image, denied":            {"Image", "", "now denySwaps main now", "mark (Running proxy Running) (Running proxy Succeeded) swap mark +15s " + decided},
			"pod replaced":             {"Auto", "", "stale delete again now", "mark +1s"},
			"Image, pod replaced":      {"Image Respect", "", "main stale delete again now", "swap +1s"},
			"record is null":           {"Auto", "null record", "main now now now events unrecord now", "mark (Running proxy Succeeded) InvalidAnnotation mark +1m0s " + decided},
			"record is too long":       {"Auto", "long record", "main now now now events unrecord now", "mark (Running proxy Succeeded) InvalidAnnotation mark +1m0s " + decided},
			"record, by variable":      {"=logger", "record and variable", "main now now now events unrecord now", "mark (Running proxy Succeeded) InvalidAnnotation mark +1m0s " + decided},
			"too many containers":      {"Auto", "large", "main now now events", "PodTooLarge"},
			"no sidecar":               {"=logger", "", "now main now", ""},
			"DryRun":                   {"DryRun", "", "now main now", ""},
			"not scheduled":            {"PodPhase", "unscheduled", "now", ""},
			"finished":                 {"PodPhase", "finished", "now", ""},
		},
		true: {
			"CRR":                {"CRR", "", "now main now now proxy", "mark (Running proxy Running) (Running proxy Succeeded) create +1m0s +1m0s (Succeeded proxy Decided)"},
			"no operator":        {"CRR", "", "now main proxy", "mark (Running proxy Running) (Running proxy Succeeded) (Succeeded proxy Decided)"},
			"CRR, late":          {"CRR", "", "main now now now proxy", "mark (Running proxy Succeeded) create +1m0s +1m0s (Succeeded proxy Decided)"},
			"CRR, pod replaced":  {"CRR Respect", "", "now main stale delete again now", "create withdraw +1m0s"},
			"CRR, name taken":    {"CRR", "", "now takeName main now events", "mark (Running proxy Running) (Running proxy Succeeded) create mark +15s " + decided + " Fallback"},
			"CRR, restart rules": {"CRR", "proxy rules", "now main now now proxy", "mark (Running proxy Waiting Running) mark (Running proxy Waiting Succeeded) create +1m0s (Succeeded proxy Waiting Decided)"},
			"CRR, Respect":       {"CRR Respect", "", "now main now now proxy", "create +1m0s +1m0s (Failed unmarked)"},
			"Auto":               {"Auto", "OnFailure", "now main now now proxy", "mark (Running proxy Waiting Running) (Running proxy Waiting Succeeded) create +1m0s +1m0s (Succeeded proxy Waiting Decided)"},
		},
	}, func(b *bench, clock *clocktesting.FakePassiveClock, row script) {
		b.follow(clock, row.policy, row.pod, row.steps).checks(row.trace)
	})
}

// Policies decide until the main containers are done.
func TestMarkFollowsPolicies(t *testing.T) {
	b, clock := newTimedBench(t, false)
	for change, trace := range map[string]string{
		"now":     decided,
		"+logger": "mark (Running logger,proxy PodPhase Running) (Succeeded logger,proxy PodPhase Decided)",
		"=logger": "mark (Running logger PodPhase Running)",
		"=all":    "mark (Running Running)",
		"Image":   "mark (Running proxy Running) (Running proxy Succeeded)",
		"drain":   "mark (Running proxy Running) (Running proxy Succeeded)",
		"Respect": "mark (Running Running)",
		"DryRun":  "mark (Running Running)",
		"web":     "mark (Running Running)",
		"release": "mark (Running Running)",
	} {
		b.run(change, func() {
			b.follow(clock, "Auto", "logger ended", "now "+change+" now now main").checks("mark (Running proxy PodPhase Running) " + trace)
		})
	}
}

// Where no admission policy decides the outcome of pods, the operator does, with its marks. It says so if the kubelet was faster.
func TestOutcomeDecidedByOperator(t *testing.T) {
	const marked = "mark (Running proxy PodPhase) "
	onBenches(t, map[bool]map[string]script{
		false: {
			"PodPhase":                 {"PodPhase", "", "now now main now now", marked + "mark " + decided + " +2s"},
			"OnFailure":                {"PodPhase", "OnFailure", "now now main now now", marked + "mark " + decided + " +2s"},
			"Image":                    {"Image", "", "now main now now ended now", "mark (Running proxy) mark (Running proxy Succeeded) swap +1m0s mark (Succeeded proxy Decided)"},
			"proxy ends first":         {"PodPhase", "", "now ended main now", marked + "mark " + decided},
			"drain":                    {"PodPhase drain", "", "now main now now ended now", "mark (Running proxy) mark (Running proxy Succeeded) +5s mark (Succeeded proxy Decided)"},
			"installed while running":  {"PodPhase", "", "now now install report now main", marked + "(Running proxy PodPhase Running) " + decided},
			"installed unnoticed":      {"PodPhase", "", "now now install main now", marked + decided + " +2s"},
			"too late":                 {"Image", "", "now main now proxy now events now", "mark (Running proxy) mark (Running proxy Succeeded) (Failed proxy Succeeded) DecidedTooLate"},
			"restarted, then too late": {"Image", "", "now main now restart now proxy now events", "mark (Running proxy) mark (Running proxy Succeeded) swap +1m0s (Failed proxy Succeeded) Terminating DecidedTooLate"},
			"away":                     {"Image", "", "now main proxy restart lead now events", "mark (Running proxy) (Failed proxy) enqueue job-1 DecidedTooLate"},
			"away, main fails":         {"Image", "", "now failure proxy restart lead now events", "mark (Running proxy) (Failed proxy) enqueue job-1"},
			"failed before":            {"Image", "", "now main proxy restart resume now events", "mark (Running proxy) (Failed proxy)"},
		},
		true: {
			"CRR":           {"CRR", "", "now main now now ended now", "mark (Running proxy) mark (Running proxy Succeeded) create +1m0s mark (Succeeded proxy Decided)"},
			"CRR, too late": {"CRR", "", "now main now now proxy events now events", "mark (Running proxy) mark (Running proxy Succeeded) create +1m0s (Failed proxy Succeeded) Terminating DecidedTooLate"},
		},
	}, func(b *bench, clock *clocktesting.FakePassiveClock, row script) {
		b.in(b.newNamespace(map[string]string{undecidedLabel: "true"}), func() {
			b.follow(clock, row.policy, row.pod, row.steps).checks(row.trace)
		})
	})
}

// A pod that its phase ends is read once after it has left the cache, and again if a container still runs. It is reported once.
func TestPodEndedByPhaseIsReportedOnce(t *testing.T) {
	const ended = "attempts PodPhase, terminated PodPhase"
	type report struct {
		drain    string
		steps    string // after the mark
		delays   string
		reads    int // from the API server
		counters string
		events   string // reasons
	}
	onBenches(t, map[bool]map[string]report{
		false: {
			"sidecar ends at once":       {"", "main now proxy later", "+2s", 1, ended, "Terminating"},
			"sidecar ends late":          {"", "main now later proxy later", "+2s +58s", 2, ended, "Terminating"},
			"sidecar ended before main":  {"", "early main now later", "+2s", 1, "", ""},
			"sidecar runs on":            {"", "main now later later later delete later", "+2s +58s +10m0s +10m0s", 4, "attempts PodPhase, failures PodPhase, terminated PodPhase", "Terminating Stuck"},
			"main fails":                 {"", "failure proxy now later", "+2s", 1, "", ""},
			"drain":                      {"drain", "main now later proxy now later", "+5s +1m0s +2s", 1, ended, "Terminating"},
			"drain, stale cache":         {"drain", "main now stale later now current proxy now later", "+5s +1m0s +1s +2s", 1, ended, "Terminating"},
			"drain, lost answer":         {"drain", "main now lose later answer proxy now later", "+5s error +2s", 1, ended, "Terminating"},
			"stale cache lacks the mark": {"", "main unmarked now current proxy now later", "+1s +2s", 1, ended, "Terminating"},
			"read fails":                 {"", "main proxy now break later mend now", "+2s error", 2, ended, "Terminating"},
			"deleted before the read":    {"", "main now delete later", "+2s", 1, "", ""},
			"deleted after the read":     {"", "main now later delete later", "+2s +58s", 2, ended, "Terminating"},
			"deleted while main runs":    {"", "delete now later", "+2s", 1, "", ""},
			"name reused":                {"", "main now delete again now main proxy now later", "+2s +2s", 1, ended, "Terminating"},
			"policy deleted":             {"", "main now release later", "+2s", 1, "", ""},
			"operator restarted":         {"", "restart main now", "", 0, "", ""},
		},
		true: {
			"sidecar runs on": {"", "main now later later proxy later", "+2s +58s +1m0s", 3,
				"attempts CRR, attempts PodPhase, failures PodPhase, fallbacks CRR, terminated CRR", "Terminating Fallback"},
		},
	}, func(b *bench, clock *clocktesting.FakePassiveClock, r report) {
		operatorLog.take()
		before, stuckBefore := counters(), testutil.ToFloat64(stuckPods)
		s := b.follow(clock, "PodPhase "+r.drain, "", "now "+r.steps)
		var delays, counted, reasons []string
		for _, word := range s.trace {
			if word == "error" || strings.HasPrefix(word, "+") {
				delays = append(delays, word)
			}
		}
		for counter, value := range counters() {
			for range int(value - before[counter]) {
				counted = append(counted, counter)
			}
		}
		slices.Sort(counted)
		for _, event := range s.events.take() {
			reasons = append(reasons, strings.Fields(event)[1])
		}
		got := report{r.drain, r.steps, strings.Join(delays, " "), s.live.number, strings.Join(counted, ", "), strings.Join(reasons, " ")}
		if got != r {
			s.Errorf("got %+v, want %+v; trace %v", got, r, s.trace)
		}
		terminated := strings.Count(r.counters, "terminated")
		if lines := strings.Count(operatorLog.take(), `"msg":"Sidecars terminated"`); lines != terminated {
			s.Errorf("%d lines in the log, want %d", lines, terminated)
		}
		if tally := s.policies.reporter.take(resolve.RefOf(s.policy)); tally.Terminated != int64(terminated) {
			s.Errorf("tally %+v, want %d terminated", tally, terminated)
		}
		if len(s.pods.states.pods) > 0 || testutil.ToFloat64(stuckPods) != stuckBefore {
			s.Errorf("still held: %v, %v stuck pods", s.pods.states.pods, testutil.ToFloat64(stuckPods))
		}
	})
}
