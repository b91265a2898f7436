//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	nativeComponent = "config/components/native"
	// conversionTimeout is for the API server to notice policies and admission policies.
	conversionTimeout = time.Minute
	testFieldOwner    = client.FieldOwner("e2e")
)

// AddNative installs the component native if the cluster can have it. The returned function removes it.
func AddNative() (remove func() error, err error) {
	cluster, err := Connect()
	if err != nil {
		return nil, err
	}
	if converts, err := cluster.canConvert(); err != nil || !converts {
		return func() error { return nil }, err
	}
	objects, err := cluster.nativeObjects()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := cluster.installNative(ctx, objects); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		return cluster.deleteAll(ctx, objects)
	}, nil
}

// canConvert reports whether the cluster serves MutatingAdmissionPolicies in version v1, as Kubernetes does since 1.36.
func (c *Cluster) canConvert() (bool, error) {
	kind := admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy")
	_, err := c.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// nativeObjects returns the objects of the component native.
func (c *Cluster) nativeObjects() ([]*unstructured.Unstructured, error) {
	return c.render(nativeComponent)
}

// render returns the objects of a kustomization of the repository.
func (c *Cluster) render(kustomization string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // the overlays set it
	rendered, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(c.Repository, filepath.FromSlash(kustomization)))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", kustomization, err)
	}
	objects := make([]*unstructured.Unstructured, 0, rendered.Size())
	for _, resource := range rendered.Resources() {
		object, err := resource.Map()
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", resource.CurId(), kustomization, err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: object})
	}
	return objects, nil
}

// installNative applies the objects of the component native and waits until policies get its label. The API server notices
// admission policies a moment after their write.
func (c *Cluster) installNative(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), testFieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return poll(ctx, func(ctx context.Context) error {
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: PolicySpec("")}}
		policy.GenerateName, policy.Spec.NativeConversion = "dry-run-", v1alpha1.NativeConversionPreferred
		if err := c.Client.Create(ctx, policy, client.DryRunAll); err != nil {
			return err
		}
		if policy.Labels[v1alpha1.LabelNativeConversion] == "" {
			return errors.New("the component native is not effective")
		}
		return nil
	})
}

// deleteAll deletes the objects that exist.
func (c *Cluster) deleteAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	var failures []error
	for _, object := range objects {
		if err := client.IgnoreNotFound(c.Client.Delete(ctx, object.DeepCopy())); err != nil {
			failures = append(failures, fmt.Errorf("delete %s %s: %w", object.GetKind(), object.GetName(), err))
		}
	}
	return errors.Join(failures...)
}

// CanConvert reports whether the cluster can convert sidecars to native ones.
func (t *Test) CanConvert() bool {
	t.Helper()
	converts, err := t.canConvert()
	if err != nil {
		t.Fatalf("Look up MutatingAdmissionPolicies: %v", err)
	}
	return converts
}

// NativeComponent is the component native on the cluster.
type NativeComponent struct {
	test    *Test
	objects []*unstructured.Unstructured
}

// NativeComponent returns the component, and installs it when the test ends.
func (t *Test) NativeComponent() *NativeComponent {
	t.Helper()
	objects, err := t.nativeObjects()
	if err != nil {
		t.Fatal(err)
	}
	component := &NativeComponent{t, objects}
	t.Cleanup(func() { component.apply(context.Background()) })
	return component
}

// Apply installs the component.
func (n *NativeComponent) Apply() {
	n.test.Helper()
	n.apply(n.test.Context())
}

func (n *NativeComponent) apply(ctx context.Context) {
	n.test.Helper()
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := n.test.installNative(ctx, n.objects); err != nil {
		n.test.Errorf("Install the component native: %v", err)
	}
}

// Delete removes the component.
func (n *NativeComponent) Delete() {
	n.test.Helper()
	if err := n.test.deleteAll(n.test.Context(), n.objects); err != nil {
		n.test.Errorf("Remove the component native: %v", err)
	}
}

// WaitForConversion waits until new pods of the template get the annotation with their converted sidecars. An empty annotation
// means that none is converted. The API server notices changes of policies a moment after their write.
func (t *Test) WaitForConversion(template corev1.PodTemplateSpec, annotation string) {
	t.Helper()
	t.Eventually(fmt.Sprintf("new pods to have conversions %q", annotation), conversionTimeout, func(ctx context.Context) error {
		pod, err := t.dryRunPod(ctx, template)
		if err != nil {
			return err
		}
		if got := pod.Annotations[v1alpha1.AnnotationNativeSidecars]; got != annotation {
			return fmt.Errorf("they have %q", got)
		}
		return nil
	})
}

// WaitForDenial waits until new pods of the template are denied with an error that has the words.
func (t *Test) WaitForDenial(template corev1.PodTemplateSpec, words string) {
	t.Helper()
	t.Eventually("new pods to be denied because of "+words, conversionTimeout, func(ctx context.Context) error {
		_, err := t.dryRunPod(ctx, template)
		switch {
		case err == nil:
			return errors.New("they are not denied")
		case !strings.Contains(err.Error(), words):
			return err
		default:
			return nil
		}
	})
}

// WaitForInjection waits until new pods of the template get a further container.
func (t *Test) WaitForInjection(template corev1.PodTemplateSpec) {
	t.Helper()
	t.Eventually("new pods to get a sidecar", conversionTimeout, func(ctx context.Context) error {
		pod, err := t.dryRunPod(ctx, template)
		if err != nil {
			return err
		}
		if len(pod.Spec.Containers) == len(template.Spec.Containers) {
			return errors.New("nothing injects it")
		}
		return nil
	})
}

// dryRunPod returns the pod that the template would become.
func (t *Test) dryRunPod(ctx context.Context, template corev1.PodTemplateSpec) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.GenerateName = t.Namespace, "", "dry-run-"
	return pod, t.Client.Create(ctx, pod, client.DryRunAll)
}

// Load is a load of dry runs that create pods.
type Load struct {
	cancel            context.CancelFunc
	workers           sync.WaitGroup
	converted, others atomic.Int64
}

// StartLoad creates pods of the template in dry runs until it is stopped. It fails the test if one of them is denied.
func (t *Test) StartLoad(template corev1.PodTemplateSpec, workers int) *Load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	load := &Load{cancel: cancel}
	t.Cleanup(func() { load.Stop() })
	for range workers {
		load.workers.Go(func() {
			for ctx.Err() == nil {
				pod, err := t.dryRunPod(ctx, template)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Errorf("Create a pod: %v", err)
				case pod.Annotations[v1alpha1.AnnotationNativeSidecars] == "":
					load.others.Add(1)
				default:
					load.converted.Add(1)
				}
			}
		})
	}
	return load
}

// Stop stops the load, and returns how many pods were converted and how many were not. It is idempotent.
func (l *Load) Stop() (converted, others int64) {
	l.cancel()
	l.workers.Wait()
	return l.converted.Load(), l.others.Load()
}
