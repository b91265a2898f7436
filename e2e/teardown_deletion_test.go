//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// teardown is a way to terminate a sidecar.
type teardown struct {
	// name is its name in documents.
	name string
	mode v1alpha1.Mode
	// native says that Kubernetes terminates the sidecar, without the operator.
	native bool
	// phaseFirst says that the pod's phase is terminal while the sidecar terminates.
	phaseFirst bool
}

// OpenKruise's daemon runs on the node, so Auto means CRR.
var teardowns = []teardown{
	{name: "Auto", mode: v1alpha1.ModeAuto},
	{name: "PodPhase", mode: v1alpha1.ModePodPhase, phaseFirst: true},
	{name: "Image", mode: v1alpha1.ModeImage},
	{name: "native sidecar, without the operator", native: true},
}

// phase describes the pod's phase while the sidecar terminates.
func (d teardown) phase() string {
	if d.phaseFirst {
		return "terminal"
	}
	return "Running"
}

// label is the value of policyLabel on the pods.
func (d teardown) label() string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(d.name), "-"), "-")
}

// policy returns the policy, or nil for a native sidecar.
func (d teardown) policy() *v1alpha1.SidecarTerminationPolicy {
	if d.native {
		return nil
	}
	policy := harness.Policy(d.mode)
	policy.Name = d.label()
	policy.Spec.Image = harness.QuickExitImage
	policy.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: d.label()}
	return policy
}

// job returns a Job whose sidecar is terminated this way.
func (d teardown) job(name string, sidecar, main corev1.Container) *batchv1.Job {
	job := harness.Job(name, corev1.RestartPolicyNever, main)
	spec := &job.Spec.Template.Spec
	if d.native {
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = []corev1.Container{sidecar}
	} else {
		spec.Containers = append(spec.Containers, sidecar)
	}
	job.Spec.Template.Labels = map[string]string{policyLabel: d.label()}
	return job
}

// createTeardownPolicies creates the policies of the teardowns.
func createTeardownPolicies(test *harness.Test) {
	test.Helper()
	for _, d := range teardowns {
		if policy := d.policy(); policy != nil {
			test.Create(policy)
		}
	}
}

const (
	// teardownGrace is the grace period of the pods. No controller removes foreignFinalizer.
	teardownGrace    = 30
	foreignFinalizer = "example.com/hold"
	// podsOfTeardown is how many pods run at once.
	podsOfTeardown = 30
	// tokenInterval is the interval of requests with a sidecar's token.
	tokenInterval = time.Second
	// longestPause is a multiple of the interval of a flush's lines. A longer pause means SIGKILL.
	longestPause = 6 * time.Second
)

// deletion is how the pod is deleted.
type deletion string

const (
	deletePod     deletion = "pod deleted"
	deleteJob     deletion = "Job deleted"
	deleteJobLast deletion = "Job deleted, foreground"
	deleteByTTL   deletion = "ttlSecondsAfterFinished 0"
)

// deletionCase is a pod that is deleted while its sidecar flushes.
type deletionCase struct {
	teardown
	deletion
	// after is the time from SIGTERM to the deletion.
	after time.Duration
	// held says that the pod has foreignFinalizer.
	held  bool
	flush time.Duration
}

func (c deletionCase) String() string {
	held := "free"
	if c.held {
		held = "held"
	}
	return fmt.Sprintf("%s/%s/after %v/%s/flush %v", c.label(), c.deletion, c.after, held, c.flush)
}

// deletionResult is the result of a deletionCase.
type deletionResult struct {
	harness.Flush
	// deleted is the time from SIGTERM to the deletion.
	deleted time.Duration
	// gone says that the object was gone before the flush ended, and logServed that the log was available until then.
	gone, logServed bool
	// tokenLost is the time from the deletion until the sidecar's token was rejected, or 0.
	tokenLost time.Duration
}

// basicDeletions are the cases of each test run. They exclude pods with a finalizer whose Job has a TTL: on a busy node the TTL may
// expire before the kubelet has stopped the sidecar, which cuts the flush short. The flush outlasts the time that the Job controller
// needs on a busy machine to remove its finalizer from a pod, which keeps a deleted object.
func basicDeletions() []deletionCase {
	const flush = 20 * time.Second
	var all []deletionCase
	for _, d := range teardowns {
		for _, held := range []bool{false, true} {
			all = append(all, deletionCase{d, deletePod, time.Second, held, flush})
			if d.phaseFirst && !held {
				all = append(all, deletionCase{d, deleteByTTL, 0, held, flush})
			}
		}
	}
	return all
}

// allDeletions are all deletions, early and late in the grace period.
func allDeletions() []deletionCase {
	var all []deletionCase
	for _, d := range teardowns {
		for _, held := range []bool{false, true} {
			for _, flush := range []time.Duration{10 * time.Second, 25 * time.Second} {
				by := []deletion{deletePod, deleteJob}
				if d.phaseFirst {
					by = append(by, deleteJobLast)
				}
				for _, by := range by {
					for _, after := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 8 * time.Second, 20 * time.Second} {
						if after < flush {
							all = append(all, deletionCase{d, by, after, held, flush})
						}
					}
				}
				if d.phaseFirst {
					all = append(all, deletionCase{d, deleteByTTL, 0, held, flush})
				}
			}
		}
	}
	return all
}

// Deleting a pod does not shorten a running termination: the kubelet keeps the grace period that it started with. The deletion
// removes the object, and with it the sidecar's token.
func TestTeardownDeletion(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	flushes := test.Flushes()
	createTeardownPolicies(test)
	all := basicDeletions()
	if testenv.Long() {
		all = allDeletions()
	}
	test.Cleanup(func() { releaseHeldPods(test) })
	results, slots := make([]deletionResult, len(all)), make(chan struct{}, podsOfTeardown)
	t.Run("cases", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				results[i] = runDeletion(harness.Within(t, test), flushes, c, fmt.Sprintf("job-%03d", i))
				t.Logf("%+v", results[i])
				// On a busy node, a flush may take longer than the grace period. One that is cut short ends seconds after the deletion. A
				// TTL of 0 deletes the pod after 1 second, which may be before its kubelet begins to stop containers.
				if cutShort := !results[i].Complete && results[i].Last < teardownGrace*time.Second/2; cutShort && c.deletion != deleteByTTL {
					t.Errorf("The sidecar was killed %v after SIGTERM, before its flush of %v and the grace period of %d s ended", results[i].Last, c.flush, teardownGrace)
				}
				if gone := c.phaseFirst && !c.held; results[i].gone != gone || results[i].logServed == gone {
					t.Errorf("object gone: %t, want %t; log served: %t", results[i].gone, gone, results[i].logServed)
				}
			})
		}
	})
	if !t.Failed() && testenv.Long() {
		test.RequireSection("docs/teardown.md", "deletion", deletionTable(all, results))
	}
}

// deletionTable has a row for each teardown, with the results of the pods without a finalizer.
func deletionTable(all []deletionCase, results []deletionResult) string {
	var out strings.Builder
	out.WriteString("| mode | pod's phase while the sidecar terminates | grace period | pod's object | `kubectl logs` | ServiceAccount token |\n|---|---|---|---|---|---|\n")
	for _, d := range teardowns {
		object, log, token := "stays", "served", "accepted"
		for i, c := range all {
			if c.teardown != d || c.held {
				continue
			}
			if results[i].gone {
				object, log = "gone", "not served"
			}
			if results[i].tokenLost > 0 {
				token = "refused"
			}
		}
		fmt.Fprintf(&out, "| %s | %s | kept | %s | %s | %s |\n", d.name, d.phase(), object, log, token)
	}
	return out.String()
}

// flushingJob returns a Job whose sidecar flushes.
func (c deletionCase) flushingJob(flushes *harness.Flushes, name string) *batchv1.Job {
	job := c.job(name, flushes.Container(harness.SidecarName, name, c.flush), harness.Main(2))
	// A pod that is deleted before its phase is terminal has failed. It must not be replaced.
	job.Spec.BackoffLimit = ptr.To[int32](0)
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](teardownGrace)
	flushes.Mount(&job.Spec.Template.Spec, harness.SidecarName)
	if c.held {
		job.Spec.Template.Finalizers = []string{foreignFinalizer}
	}
	return job
}

func runDeletion(test *harness.Test, flushes *harness.Flushes, c deletionCase, name string) deletionResult {
	test.Helper()
	job := c.flushingJob(flushes, name)
	job.Spec.Template.Spec.AutomountServiceAccountToken = ptr.To(true)
	if c.deletion == deleteByTTL {
		job.Spec.TTLSecondsAfterFinished = ptr.To[int32](0)
	}
	test.Create(job)

	pod := waitForTeardown(test, flushes, c, name)
	token := flushes.Token(name)
	// A TTL of 0 may have deleted the pod by now: it runs from the end of the Job, which follows the written phase.
	if c.deletion != deleteByTTL {
		if err := useToken(test, token); err != nil {
			test.Errorf("The token was rejected before the deletion: %v", err)
		}
	}
	deletedAt := deleteAs(test, c, job, pod)
	var result deletionResult
	var flush harness.Flush
	lastTried := time.Duration(0)
	test.Eventually("the sidecar to terminate", harness.FinishTimeout, func(ctx context.Context) error {
		flush = flushes.Read(name)
		if now := test.Uptime(); now-lastTried >= tokenInterval {
			lastTried = now
			if err := useToken(test, token); result.tokenLost == 0 && apierrors.IsUnauthorized(err) {
				result.tokenLost = test.Uptime() - deletedAt
			}
			result.logServed = logIsServed(test, pod)
		}
		if flush.Complete {
			return nil
		}
		// The container was killed.
		if flush.Terminated > 0 && test.Uptime()-flush.Terminated-flush.Last > longestPause {
			return nil
		}
		return errors.New("it still flushes")
	})
	result.Flush, result.deleted = flush, deletedAt-flush.Terminated
	test.Recorder.Look(func(seen harness.Seen) { result.gone = seen.Pods(name)[0].Deleted })
	return result
}

// waitForTeardown waits until the pod is due for deletion, and returns it.
func waitForTeardown(test *harness.Test, flushes *harness.Flushes, c deletionCase, name string) *corev1.Pod {
	test.Helper()
	test.Eventually("the sidecar to flush", harness.FinishTimeout, func(context.Context) error {
		if flush := flushes.Read(name); flush.Terminated == 0 || test.Uptime()-flush.Terminated < c.after {
			return errors.New("it is too early")
		}
		return nil
	})
	return test.PodOf(name)
}

// deleteAs deletes the pod as the case says, and returns the time since boot.
func deleteAs(test *harness.Test, c deletionCase, job *batchv1.Job, pod *corev1.Pod) time.Duration {
	test.Helper()
	var err error
	switch c.deletion {
	case deletePod:
		err = test.Client.Delete(test.Context(), pod)
	case deleteJob:
		err = test.Client.Delete(test.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))
	case deleteJobLast:
		err = test.Client.Delete(test.Context(), job, client.PropagationPolicy(metav1.DeletePropagationForeground))
	case deleteByTTL:
	}
	if err != nil {
		test.Fatalf("%s: %v", c.deletion, err)
	}
	test.EventuallySeen("the pod to be deleted", harness.FinishTimeout, func(seen harness.Seen) error {
		record := seen.Pods(pod.Name)[0]
		if !record.Deleted && record.Pod.DeletionTimestamp == nil {
			return errors.New("it has no deletionTimestamp")
		}
		return nil
	})
	return test.Uptime()
}

// useToken sends a request with the token of a sidecar.
func useToken(test *harness.Test, token string) error {
	test.Helper()
	config := rest.AnonymousClientConfig(test.Config)
	config.BearerToken = token
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		test.Fatalf("Create a client with the sidecar's token: %v", err)
	}
	_, err = clientset.AuthenticationV1().SelfSubjectReviews().Create(test.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// logIsServed reports whether the API server returns the sidecar's log.
func logIsServed(test *harness.Test, pod *corev1.Pod) bool {
	options := &corev1.PodLogOptions{Container: harness.SidecarName, TailLines: ptr.To[int64](1)}
	_, err := test.Clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(test.Context())
	return err == nil
}

// releaseHeldPods removes the finalizers of all pods, so that the namespace can be deleted.
func releaseHeldPods(test *harness.Test) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.FinishTimeout)
	defer cancel()
	pods := &corev1.PodList{}
	if err := test.Client.List(ctx, pods, client.InNamespace(test.Namespace)); err != nil {
		test.Errorf("List the pods: %v", err)
	}
	for i := range pods.Items {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := test.Client.Patch(ctx, &pods.Items[i], patch); client.IgnoreNotFound(err) != nil {
			test.Errorf("Remove the finalizers of pod %s: %v", pods.Items[i].Name, err)
		}
	}
}

// kubeletOfFargate is the kubelet of a node with few other pods.
const kubeletOfFargate = "kubelet-" + fargateNode

// A restarted kubelet gives a pod no grace period if the pod was deleted after its phase was written, and a full new one otherwise.
func TestTeardownKubeletRestart(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	test := harness.New(t)
	test.WholeAtEnd()
	flushes := test.Flushes()
	createTeardownPolicies(test)
	test.Cleanup(func() { releaseHeldPods(test) })
	jobs := map[*deletionCase]*batchv1.Job{}
	for _, d := range teardowns {
		if !d.native && d.mode != v1alpha1.ModePodPhase && d.mode != v1alpha1.ModeImage { // OpenKruise's daemon does not run on this node
			continue
		}
		for _, c := range []*deletionCase{
			{teardown: d, flush: 20 * time.Second},
			{teardown: d, flush: 20 * time.Second, deletion: deletePod},
			{teardown: d, flush: 20 * time.Second, deletion: deletePod, held: true},
		} {
			jobs[c] = onNode(c.flushingJob(flushes, jobName(len(jobs))), fargateNode)
			test.Create(jobs[c])
		}
	}
	for c, job := range jobs {
		if pod := waitForTeardown(test, flushes, *c, job.Name); c.deletion != "" {
			deleteAs(test, *c, job, pod)
		}
	}
	test.RestoreWith("component", "start", kubeletOfFargate)
	test.LocalCluster("component", "stop", kubeletOfFargate)
	test.LocalCluster("component", "start", kubeletOfFargate)
	for c, job := range jobs {
		var flush harness.Flush
		test.Eventually("the sidecar to terminate", harness.FinishTimeout, func(context.Context) error {
			flush = flushes.Read(job.Name)
			if !flush.Complete && test.Uptime()-flush.Terminated-flush.Last <= longestPause {
				return errors.New("it still flushes")
			}
			return nil
		})
		if wanted := c.deletion == "" || !c.phaseFirst; flush.Complete != wanted {
			t.Errorf("%s: flushed for %v, complete: %t, want %t", c, flush.Last, flush.Complete, wanted)
		}
	}
}
