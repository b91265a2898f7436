// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
	schemes "github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

const (
	systemNamespace = settings.Namespace
	serviceAccount  = settings.DeploymentName
	quickExit       = "registry.example/quick-exit:v1"
	// undecidedLabel marks the namespaces in which no admission policy decides the outcome of pods.
	undecidedLabel = "undecided"
)

var (
	// server is the administrator's connection to the API server.
	server *rest.Config
	scheme *runtime.Scheme
)

func TestMain(m *testing.M) {
	var err error
	if scheme, err = schemes.New(); err != nil {
		panic(err)
	}
	ctrl.SetLogger(zap.New(zap.WriteTo(&operatorLog)))
	os.Exit(testenv.Run(m, "../config/crd/bases", func(config *rest.Config) {
		server = config
		server.QPS = -1
	}))
}

// operatorLog is the operator's log since the last take.
var operatorLog sharedLog

type sharedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *sharedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *sharedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.String()
	l.text.Reset()
	return text
}

// writes records each write as "verb resource" by namespace, except for events and leases.
type writes struct {
	mu   sync.Mutex
	list map[string][]string
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if call := callOf(r); r.Method != http.MethodGet && call.Resource != "events" && call.Resource != "leases" {
			w.mu.Lock()
			w.list[call.Namespace] = append(w.list[call.Namespace], r.Method+" "+target(call))
			w.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// forget drops the records.
func (w *writes) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.list)
}

// in returns the writes in a namespace so far, without the names of objects.
func (w *writes) in(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list[namespace])
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// fixture is a namespace of the API server with the operator's environment.
type fixture struct {
	client.Client // of the administrator
	*testing.T
	namespace string
	node      string
	writes    writes
	watches   watches
	failing   failingCalls
}

var installOnce sync.Once

// newFixture creates a namespace, with labels, and a node.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	c, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Client: c, T: t, writes: writes{list: map[string][]string{}}}
	installOnce.Do(f.installConfig)
	operatorLog.take()
	f.namespace = f.newNamespace(nil)
	f.node = f.newNode(nil)
	return f
}

// newNamespace creates a namespace with the labels.
func (f *fixture) newNamespace(labels map[string]string) string {
	f.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "batch-", Labels: labels}}
	f.create(namespace)
	f.Cleanup(func() { f.in(namespace.Name, f.cleanUp) })
	return namespace.Name
}

// in calls the function with the fixture in another namespace.
func (f *fixture) in(namespace string, do func()) {
	own := f.namespace
	f.namespace = namespace
	defer func() { f.namespace = own }()
	do()
}

// cleanUp deletes what a later test could see: everything in the namespace, and the cluster policy with its name.
func (f *fixture) cleanUp() {
	ctx := context.WithoutCancel(f.Context())
	if f.Failed() {
		f.Logf("writes: %q\nlog of the operator:\n%s", f.writes.in(f.namespace), operatorLog.take())
	}
	for _, object := range []client.Object{&corev1.Pod{}, &v1alpha1.SidecarTerminationPolicy{}} {
		// The API server deletes as many pods as it can in a minute.
		if err := retry.OnError(retry.DefaultRetry, apierrors.IsTimeout, func() error {
			return f.DeleteAllOf(ctx, object, client.InNamespace(f.namespace), client.GracePeriodSeconds(0))
		}); err != nil {
			f.Error(err)
		}
	}
	// A parallel test may have a cluster policy as well.
	clusterPolicy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	if err := f.Delete(ctx, clusterPolicy); client.IgnoreNotFound(err) != nil {
		f.Error(err)
	}
}

// installConfig installs the operator's namespace, ServiceAccount, roles and admission policies as users do, and waits until the outcome
// of pods is decided. The admission policies must not deny any write of the operator.
func (f *fixture) installConfig() {
	f.Helper()
	built := testenv.Render(f.T, "../config/default")
	for _, object := range append(built, testenv.Render(f.T, "../config/components/include-injected")...) {
		switch object.GetKind() {
		case "MutatingAdmissionPolicyBinding":
			decided := []any{map[string]any{"key": undecidedLabel, "operator": "DoesNotExist"}}
			if err := unstructured.SetNestedSlice(object.Object, decided, "spec", "matchResources", "namespaceSelector", "matchExpressions"); err != nil {
				f.Fatal(err)
			}
			f.create(object)
		case "Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
			"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			f.create(object)
		}
	}
	f.in(f.newNamespace(nil), f.untilDecided)
}

// untilDecided waits until the admission policy decides the outcome of pods in the namespace.
func (f *fixture) untilDecided() {
	f.Helper()
	probe := podtest.New(func(p *corev1.Pod) { p.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers })
	probe.ObjectMeta = metav1.ObjectMeta{Namespace: f.namespace, Name: "probe", Labels: probe.Labels}
	f.create(probe)
	testenv.Eventually(f.T, "the outcome of pods is decided", func(ctx context.Context) error {
		if err := f.Status().Update(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.Annotations[v1alpha1.AnnotationMainContainers] == "" {
			return errors.New("no record")
		}
		return nil
	})
	f.remove(probe)
}

func (f *fixture) create(objects ...client.Object) {
	f.Helper()
	for _, object := range objects {
		if err := f.Create(f.Context(), object); err != nil {
			f.Fatalf("create %T: %v", object, err)
		}
	}
}

// labelNamespace sets a label of the namespace, or removes it if the value is empty.
func (f *fixture) labelNamespace(key, value string) {
	f.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	f.reload(namespace)
	if namespace.Labels[key] = value; value == "" {
		delete(namespace.Labels, key)
	}
	f.update(namespace)
}

func (f *fixture) newNode(labels map[string]string) string {
	f.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-", Labels: labels}}
	f.create(node)
	return node.Name
}

// newPod creates a pod on the fixture's node, with main and proxy running.
func (f *fixture) newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	f.Helper()
	pod := podtest.New(slices.DeleteFunc(change, func(c func(*corev1.Pod)) bool { return c == nil })...)
	status := pod.Status
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: f.namespace, Name: name, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
	}
	if pod.Spec.NodeName == "node-1" {
		pod.Spec.NodeName = f.node
	}
	f.create(pod)
	pod.Status = status
	f.writeStatus(pod)
	return pod
}

// change writes the pod's status as the kubelet would.
func (f *fixture) change(pod *corev1.Pod, change ...func(*corev1.Pod)) {
	f.Helper()
	f.reload(pod)
	for _, c := range change {
		c(pod)
	}
	f.writeStatus(pod)
}

// writeStatus patches the pod's status as a kubelet does, whatever others have written.
func (f *fixture) writeStatus(pod *corev1.Pod) {
	f.Helper()
	if err := f.Status().Patch(f.Context(), pod, kubeletPatch(pod)); err != nil {
		f.Fatalf("write status of pod: %v", err)
	}
}

// kubeletPatch is a kubelet's patch of the pod's status.
func kubeletPatch(pod *corev1.Pod) client.Patch {
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": pod.Status})
	if err != nil {
		panic(err)
	}
	return client.RawPatch(types.StrategicMergePatchType, content)
}

func (f *fixture) update(object client.Object) {
	f.Helper()
	if err := f.Update(f.Context(), object); err != nil {
		f.Fatalf("update %T: %v", object, err)
	}
}

func (f *fixture) reload(object client.Object) {
	f.Helper()
	if err := f.Get(f.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		f.Fatalf("read %T: %v", object, err)
	}
}

// remove deletes the object at once.
func (f *fixture) remove(object client.Object) {
	f.Helper()
	if err := f.Delete(f.Context(), object, client.GracePeriodSeconds(0)); err != nil {
		f.Fatalf("delete %T: %v", object, err)
	}
}

// newPolicy creates a policy that names proxy.
func (f *fixture) newPolicy(name string, change ...func(*v1alpha1.PolicySpec)) *v1alpha1.SidecarTerminationPolicy {
	f.Helper()
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.namespace, Name: name, Annotations: map[string]string{"example.com/note": "kept"},
	}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	for _, c := range change {
		c(&policy.Spec.PolicySpec)
	}
	f.create(policy)
	return policy
}

// newClusterPolicy creates a policy with the namespace's name that names proxy in the pods of the namespace.
func (f *fixture) newClusterPolicy(change ...func(*v1alpha1.ClusterSidecarTerminationPolicySpec)) *v1alpha1.ClusterSidecarTerminationPolicy {
	f.Helper()
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace}}
	for _, c := range change {
		c(&policy.Spec)
	}
	f.create(policy)
	return policy
}

// mode sets a policy's mode and exitCodePolicy.
func mode(m v1alpha1.Mode, exitCodePolicy v1alpha1.ExitCodePolicy) func(*v1alpha1.PolicySpec) {
	return func(spec *v1alpha1.PolicySpec) { spec.Mode, spec.ExitCodePolicy = m, exitCodePolicy }
}

// crrs returns the ContainerRecreateRequests of the namespace.
func (f *fixture) crrs() []kruise.ContainerRecreateRequest {
	f.Helper()
	var list kruise.ContainerRecreateRequestList
	if err := f.List(f.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		f.Fatal(err)
	}
	return list.Items
}

// crrsOf returns those that the pod owns.
func (f *fixture) crrsOf(pod *corev1.Pod) []kruise.ContainerRecreateRequest {
	f.Helper()
	return slices.DeleteFunc(f.crrs(), func(crr kruise.ContainerRecreateRequest) bool {
		return len(crr.OwnerReferences) == 0 || crr.OwnerReferences[0].UID != pod.UID
	})
}

// testOptions make the operator act at once.
func testOptions() Options {
	return Options{
		Operator: settings.Operator{
			Decisions: settings.Decisions{
				Resolve:       resolve.Options{Image: quickExit},
				NodeKindRules: plan.DefaultNodeKindRules(),
				Capabilities:  plan.Capabilities{EnabledModes: podtest.Modes(plan.PodPhaseEnabled)},
			},
			StatusPeriod:            50 * time.Millisecond,
			MaxConcurrentReconciles: 4,
		},
		Clock: clock.RealClock{},
	}
}

// asOperator connects to the API server with exactly the permissions that config/rbac grants the operator.
func asOperator() *rest.Config {
	limited := rest.CopyConfig(server)
	limited.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + systemNamespace + ":" + serviceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
	}
	return limited
}

// newManager returns a manager with the operator's permissions.
func (f *fixture) newManager(change ...func(*manager.Options)) manager.Manager {
	f.Helper()
	return f.newManagerAs(asOperator(), change...)
}

// cacheOptions returns the options of the operator's cache of the namespaces.
func (f *fixture) cacheOptions(namespaces ...string) cache.Options {
	f.Helper()
	options, err := podcache.ManagerOptions(namespaces...)
	if err != nil {
		f.Fatal(err)
	}
	return options
}

// newManagerAs returns a manager with the permissions of the connection.
func (f *fixture) newManagerAs(limited *rest.Config, change ...func(*manager.Options)) manager.Manager {
	f.Helper()
	limited.Wrap(f.writes.wrap)
	limited.Wrap(f.watches.wrap)
	limited.Wrap(f.failing.wrap)
	options := manager.Options{
		Scheme: scheme, Cache: f.cacheOptions(), NewCache: podcache.NewCache, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, MapperProvider: schemes.NewMapper,
	}
	for _, c := range change {
		c(&options)
	}
	mgr, err := manager.New(limited, options)
	if err != nil {
		f.Fatal(err)
	}
	return mgr
}

// start runs the manager until the end of the test, or until the returned function is called.
func (f *fixture) start(mgr manager.Manager) (stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("the manager ended with: %v", err)
		}
	})
	f.Cleanup(stop)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		f.Fatal("the caches did not fill")
	}
	return stop
}

// startOperator runs the whole operator.
func (f *fixture) startOperator(options Options, change ...func(*manager.Options)) (stop func()) {
	f.Helper()
	mgr := f.newManager(change...)
	if err := Setup(f.Context(), mgr, options); err != nil {
		f.Fatal(err)
	}
	return f.start(mgr)
}
