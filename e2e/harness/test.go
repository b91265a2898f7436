//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LabelNamespace marks every namespace that the tests create.
const LabelNamespace = "e2e.sidecartermination.dev/namespace"

const (
	cleanupTimeout       = 30 * time.Second
	longestTestName      = 40
	keepNamespacesEnvVar = "E2E_KEEP_NAMESPACES"
)

var notForNames = regexp.MustCompile(`[^a-z0-9]+`)

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
	return NewWithLabels(t, nil)
}

// NewWithLabels is New with labels on the namespace.
func NewWithLabels(t *testing.T, labels map[string]string) *Test {
	t.Helper()
	cluster, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	takeSlot(t)

	name := strings.Trim(notForNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(name) > longestTestName {
		name = strings.TrimRight(name[:longestTestName], "-")
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-" + name + "-", Labels: map[string]string{LabelNamespace: "true"}}}
	for key, value := range labels {
		namespace.Labels[key] = value
	}
	if err := cluster.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("Create a namespace: %v", err)
	}
	test := &Test{T: t, Cluster: cluster, Namespace: namespace.Name}
	t.Cleanup(func() { test.deleteNamespace(namespace) })
	test.Recorder = startRecorder(t, cluster.Client, namespace.Name)
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
	t.DeleteAtEnd(object)
}

// DeleteAtEnd deletes the object when the test ends.
func (t *Test) DeleteAtEnd(object client.Object) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := t.Client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
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
		if err := t.getAgain(ctx, key, object); err != nil {
			return err
		}
		return check()
	})
}

// getAgain reads the object without fields of its previous state: decoding keeps fields that a response omits.
func (t *Test) getAgain(ctx context.Context, key client.ObjectKey, object client.Object) error {
	if _, untyped := object.(*unstructured.Unstructured); !untyped {
		reflect.ValueOf(object).Elem().SetZero()
	}
	return t.Client.Get(ctx, key, object)
}

// Within returns the test for one of its subtests.
func Within(t *testing.T, parent *Test) *Test {
	t.Helper()
	return &Test{T: t, Cluster: parent.Cluster, Namespace: parent.Namespace, Recorder: parent.Recorder}
}
