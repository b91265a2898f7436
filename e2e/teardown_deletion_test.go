//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// teardownGrace is the grace period of the pods, and foreignFinalizer one that is nobody's on this cluster.
	teardownGrace    = 30
	foreignFinalizer = "example.com/hold"
	// podsOfTeardown is how many pods are under way at once.
	podsOfTeardown = 30
	// tokenInterval is how often a sidecar's token is tried.
	tokenInterval = time.Second
	// longestPause is a multiple of the time between two lines of a flush.
	longestPause = 6 * time.Second
)

// deletion is who deletes the pod.
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
	// held says that a foreign finalizer keeps the object.
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

// deletionResult is what came of it.
type deletionResult struct {
	harness.Flush
	// deleted is the time from SIGTERM to the deletion.
	deleted time.Duration
	// gone says that the object was gone before the flush ended, and logServed that the API server served the log until then.
	gone, logServed bool
	// tokenLost is the time from the deletion until the sidecar's token was refused, 0 if it never was.
	tokenLost time.Duration
}

func (r deletionResult) row(c deletionCase) string {
	return fmt.Sprintf("| %s | %.2f s | %.1f s of %v | %t | %t | %.1f s |", c, r.deleted.Seconds(), r.Last.Seconds(), c.flush, r.gone, r.logServed, r.tokenLost.Seconds())
}

// basicDeletions are those that each run of the tests tries. A pod that a finalizer keeps is not deleted by its Job's TTL
// here: on a busy node that may come before the kubelet has begun to stop the sidecar, which then is cut short.
func basicDeletions() []deletionCase {
	var all []deletionCase
	for _, d := range teardowns {
		for _, held := range []bool{false, true} {
			all = append(all, deletionCase{d, deletePod, time.Second, held, 6 * time.Second})
			if d.phaseFirst && !held {
				all = append(all, deletionCase{d, deleteByTTL, 0, held, 6 * time.Second})
			}
		}
	}
	return all
}

// allDeletions are every way of deletion, early and late in the grace period.
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

// A sidecar that flushes is not cut short when its pod is deleted: a kubelet that has begun to stop a container gives it
// the grace period that it began with. What the deletion takes away is the object, and with it the sidecar's token.
func TestTeardownDeletion(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	flushes := test.Flushes()
	createTeardownPolicies(test, teardowns)
	all := basicDeletions()
	if allFaults() {
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
				t.Logf("| case | deleted | flushed | object gone | log served | token refused after |\n%s", results[i].row(c))
				if !results[i].Complete {
					t.Errorf("The sidecar was ended %v after SIGTERM, and needed %v of a grace period of %d s", results[i].Last, c.flush, teardownGrace)
				}
				if gone := c.phaseFirst && !c.held; results[i].gone != gone || results[i].logServed == gone {
					t.Errorf("The object was gone: %t, and the log was served: %t", results[i].gone, results[i].logServed)
				}
			})
		}
	})
	if !t.Failed() && allFaults() {
		test.RequireMarkedSection("docs/teardown.md", "deletion", deletionTable(all, results))
	}
}

// deletionTable has a row for every teardown, of the pods that nobody's finalizer held.
func deletionTable(all []deletionCase, results []deletionResult) string {
	var out strings.Builder
	out.WriteString("| mode | pod's phase while the sidecar ends | grace period | pod's object | `kubectl logs` | ServiceAccount token |\n|---|---|---|---|---|---|\n")
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

func runDeletion(test *harness.Test, flushes *harness.Flushes, c deletionCase, name string) deletionResult {
	test.Helper()
	job := c.job(name, flushes.Container(harness.SidecarName, name, c.flush), harness.Main(2), flushes.Volume())
	// A pod that is deleted before its phase is terminal has failed, and is not to be replaced.
	job.Spec.BackoffLimit = ptr.To[int32](0)
	spec := &job.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds, spec.AutomountServiceAccountToken = ptr.To[int64](teardownGrace), ptr.To(true)
	if c.held {
		job.Spec.Template.Finalizers = []string{foreignFinalizer}
	}
	if c.deletion == deleteByTTL {
		job.Spec.TTLSecondsAfterFinished = ptr.To[int32](0)
	}
	test.Create(job)

	pod := waitForTeardown(test, flushes, c, name)
	tokens := tokensOf(test, flushes.Token(name))
	if err := tokens.try(test); err != nil {
		test.Errorf("The token was refused before the deletion: %v", err)
	}
	deletedAt := deleteAs(test, c, job, pod)
	var result deletionResult
	var flush harness.Flush
	lastTried := time.Duration(0)
	test.Eventually("the sidecar to end", harness.FinishTimeout, func(ctx context.Context) error {
		flush = flushes.Read(name)
		if now := test.Uptime(); now-lastTried >= tokenInterval {
			lastTried = now
			if err := tokens.try(test); result.tokenLost == 0 && apierrors.IsUnauthorized(err) {
				result.tokenLost = test.Uptime() - deletedAt
			}
			result.logServed = logIsServed(test, pod)
		}
		if flush.Complete {
			return nil
		}
		// A container that is killed logs nothing more.
		if flush.Terminated > 0 && test.Uptime()-flush.Terminated-flush.Last > longestPause {
			return nil
		}
		return errors.New("it still flushes")
	})
	result.Flush, result.deleted = flush, deletedAt-flush.Terminated
	test.Recorder.Look(func(seen harness.Seen) { result.gone = seen.Pods(name)[0].Deleted })
	return result
}

// waitForTeardown waits until it is time to delete the pod, and returns it.
func waitForTeardown(test *harness.Test, flushes *harness.Flushes, c deletionCase, name string) *corev1.Pod {
	test.Helper()
	test.Eventually("the sidecar to flush", harness.FinishTimeout, func(context.Context) error {
		if flush := flushes.Read(name); flush.Terminated == 0 || test.Uptime()-flush.Terminated < c.after {
			return errors.New("it has not come that far")
		}
		return nil
	})
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods(name)[0].Pod })
	return pod
}

// deleteAs deletes the pod as the case says, and returns when, by the time since the machine was booted.
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
			return errors.New("it is not")
		}
		return nil
	})
	return test.Uptime()
}

// sidecarTokens tries the token of a sidecar.
type sidecarTokens struct{ clientset kubernetes.Interface }

func tokensOf(test *harness.Test, token string) sidecarTokens {
	test.Helper()
	config := rest.AnonymousClientConfig(test.Config)
	config.BearerToken = token
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		test.Fatalf("Make a client with the sidecar's token: %v", err)
	}
	return sidecarTokens{clientset}
}

// try asks the API server who the sidecar is.
func (s sidecarTokens) try(test *harness.Test) error {
	_, err := s.clientset.AuthenticationV1().SelfSubjectReviews().Create(test.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// logIsServed reports whether the API server serves the sidecar's log.
func logIsServed(test *harness.Test, pod *corev1.Pod) bool {
	options := &corev1.PodLogOptions{Container: harness.SidecarName, TailLines: ptr.To[int64](1)}
	_, err := test.Clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(test.Context())
	return err == nil
}

// releaseHeldPods takes the foreign finalizer off all pods, so that the namespace can be deleted.
func releaseHeldPods(test *harness.Test) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.FinishTimeout)
	defer cancel()
	pods := &corev1.PodList{}
	if err := test.Client.List(ctx, pods, client.InNamespace(test.Namespace)); err != nil {
		test.Errorf("List the pods: %v", err)
	}
	for i := range pods.Items {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := test.Client.Patch(ctx, &pods.Items[i], patch); client.IgnoreNotFound(err) != nil {
			test.Errorf("Take the finalizer off pod %s: %v", pods.Items[i].Name, err)
		}
	}
}
