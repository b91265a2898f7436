//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const (
	cleanupTimeout       = 30 * time.Second
	longestTestName      = 40
	keepNamespacesEnvVar = "E2E_KEEP_NAMESPACES"
)

var notForNames = regexp.MustCompile(`[^a-z0-9]+`)

var (
	shared    sync.WaitGroup
	exclusive sync.Mutex
	// namespaces limits how many parallel tests have a namespace, to limit the load of the node.
	namespaces = make(chan struct{}, 12)
)

// Shared marks a top-level test that runs in parallel with other tests.
func Shared(t *testing.T) {
	t.Helper()
	shared.Add(1)
	t.Cleanup(shared.Done)
	t.Parallel()
}

// Exclusive marks a top-level test that affects the whole cluster. It runs alone, after all shared tests.
//
// The testing package runs each test up to its call of t.Parallel before it resumes any. All shared tests are therefore counted
// before the wait below starts.
func Exclusive(t *testing.T) {
	t.Helper()
	t.Parallel()
	shared.Wait()
	exclusive.Lock()
	t.Cleanup(exclusive.Unlock)
}

// Test is a running test with its own namespace and recorder.
type Test struct {
	*testing.T
	*Cluster
	Namespace string
	Recorder  *Recorder
}

// New creates a namespace for the test and starts to record. It deletes the namespace when the test ends, and logs its objects
// first if the test has failed.
func New(t *testing.T) *Test {
	t.Helper()
	cluster, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	namespaces <- struct{}{}
	t.Cleanup(func() { <-namespaces })

	name := strings.Trim(notForNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(name) > longestTestName {
		name = strings.TrimRight(name[:longestTestName], "-")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-" + name + "-", Labels: map[string]string{"e2e.sidecartermination.dev/namespace": "true"},
	}}
	if err := cluster.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("Create a namespace: %v", err)
	}
	test := &Test{T: t, Cluster: cluster, Namespace: namespace.Name}
	t.Cleanup(func() { test.deleteNamespace(namespace) })
	test.Recorder = startRecorder(t, cluster.Config, namespace.Name)
	t.Cleanup(func() {
		if t.Failed() {
			test.dump()
		}
	})
	return test
}

func (t *Test) deleteNamespace(namespace *corev1.Namespace) {
	if t.Failed() && os.Getenv(keepNamespacesEnvVar) != "" {
		t.Logf("Keep namespace %s", namespace.Name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := t.Client.Delete(ctx, namespace); client.IgnoreNotFound(err) != nil {
		t.Logf("Delete the namespace %s: %v", namespace.Name, err)
	}
}

// WriteKubeconfig writes a changed copy of the administrator's kubeconfig, and returns its path.
func (t *Test) WriteKubeconfig(change func(*clientcmdapi.Config)) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(t.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Create creates the objects, in the test's namespace unless they have one.
func (t *Test) Create(objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		namespaced, err := t.Client.IsObjectNamespaced(object)
		if err != nil {
			t.Fatalf("Look up the kind %T: %v", object, err)
		}
		if namespaced && object.GetNamespace() == "" {
			object.SetNamespace(t.Namespace)
		}
		if err := t.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("Create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// CreateForCluster creates a cluster-scoped object, and deletes it when the test ends.
func (t *Test) CreateForCluster(object client.Object) {
	t.Helper()
	t.Create(object)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := t.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			t.Errorf("Delete %T %s: %v", object, object.GetName(), err)
		}
	})
}

// Get reads the object.
func (t *Test) Get(object client.Object) {
	t.Helper()
	if err := t.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatalf("Get %T %s: %v", object, object.GetName(), err)
	}
}

// MergePatch changes the object by a JSON merge patch.
func (t *Test) MergePatch(object client.Object, patch string) {
	t.Helper()
	if err := t.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("Patch %T %s: %v", object, object.GetName(), err)
	}
}

// EventuallyGet reads the object until the check returns nil, and fails the test with the check's last error otherwise.
func (t *Test) EventuallyGet(object client.Object, what string, timeout time.Duration, check func() error) {
	t.Helper()
	key := client.ObjectKeyFromObject(object)
	t.Eventually(what, timeout, func(ctx context.Context) error {
		// Decoding keeps fields that a response omits.
		if _, untyped := object.(*unstructured.Unstructured); !untyped {
			reflect.ValueOf(object).Elem().SetZero()
		}
		if err := t.Client.Get(ctx, key, object); err != nil {
			return err
		}
		return check()
	})
}

// Within returns the test for one of its subtests.
func Within(t *testing.T, parent *Test) *Test {
	t.Helper()
	return &Test{T: t, Cluster: parent.Cluster, Namespace: parent.Namespace, Recorder: parent.Recorder}
}

// pollInterval is the interval of checks of states that no watch reports.
const pollInterval = 250 * time.Millisecond

// Eventually polls until the check returns nil, and fails the test with the check's last error otherwise.
func (t *Test) Eventually(what string, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	if err := progress.Poll(t.Context(), pollInterval, timeout, check); err != nil {
		t.Fatalf("Wait for %s: %v", what, err)
	}
}

// EventuallySeen runs the check after each recorded change until it returns nil, and fails the test with the check's last error
// otherwise.
func (t *Test) EventuallySeen(what string, timeout time.Duration, check func(Seen) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := t.Recorder.wait(ctx, check); err != nil {
		t.Fatalf("Waited %s for %s: %v", timeout, what, err)
	}
}

// SeenWithin runs the check after each recorded change, and reports whether it returns nil within the timeout.
func (t *Test) SeenWithin(timeout time.Duration, check func(Seen) error) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return t.Recorder.wait(ctx, check) == nil
}

// WaitForEvent waits for an event on the pod with the reason, and returns it.
func (t *Test) WaitForEvent(pod *corev1.Pod, reason v1alpha1.Reason) corev1.Event {
	t.Helper()
	var found corev1.Event
	t.Eventually(fmt.Sprintf("an event %s on pod %s", reason, pod.Name), StatusTimeout, func(ctx context.Context) error {
		events, err := t.eventsOn(ctx, pod)
		if err != nil {
			return err
		}
		index := slices.IndexFunc(events, func(event corev1.Event) bool { return event.Reason == string(reason) })
		if index < 0 {
			return fmt.Errorf("the pod has the events %v", ReasonsOf(events))
		}
		found = events[index]
		return nil
	})
	return found
}

// EventsOn returns the events on the pod.
func (t *Test) EventsOn(pod *corev1.Pod) []corev1.Event {
	t.Helper()
	events, err := t.eventsOn(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func (t *Test) eventsOn(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	events := &corev1.EventList{}
	if err := t.Client.List(ctx, events, client.InNamespace(pod.Namespace), client.MatchingFields{"involvedObject.name": pod.Name}); err != nil {
		return nil, fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	return slices.DeleteFunc(events.Items, func(event corev1.Event) bool { return event.InvolvedObject.UID != pod.UID }), nil
}

// ReasonsOf returns the reasons of the events.
func ReasonsOf(events []corev1.Event) []string {
	reasons := make([]string, 0, len(events))
	for i := range events {
		reasons = append(reasons, events[i].Reason)
	}
	return reasons
}

// EventuallyStatus reads the policy until the check of its status returns nil.
func (t *Test) EventuallyStatus(policy *v1alpha1.SidecarTerminationPolicy, what string, check func(v1alpha1.PolicyStatus) error) {
	t.Helper()
	current := policy.DeepCopy()
	t.EventuallyGet(current, what, StatusTimeout, func() error { return check(current.Status) })
}

// Condition returns the policy's condition, or an empty one.
func Condition(status v1alpha1.PolicyStatus, conditionType string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(status.Conditions, conditionType), metav1.Condition{})
}
