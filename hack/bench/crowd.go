// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// crowd is the pods and policies that exist while other pods complete. It only grows. The completing pods are in its namespace
// and match its policy, so that code that reads all pods of a policy or namespace reads the crowd.
type crowd struct {
	e         *environment
	c         *kubernetes.Clientset
	mode      v1alpha1.Mode
	namespace string
	others    []string // further namespaces, which sort before it; each has a node of the same name
	counts    map[Axis]int
}

// newCrowd creates the namespaces, and the policy that selects the completing pods and all candidates of its namespace.
func newCrowd(ctx context.Context, e *environment, mode v1alpha1.Mode, others int) (*crowd, error) {
	c, err := reporters(e.config)
	if err != nil {
		return nil, err
	}
	w := &crowd{e: e, c: c, mode: mode, others: make([]string, others), counts: map[Axis]int{AxisPolicies: 1}}
	if w.namespace, err = createNamespace(ctx, e.client, "crowd-", exempt); err != nil {
		return nil, err
	}
	err = each(ctx, others, 0, func(ctx context.Context, i int) (err error) {
		w.others[i], err = createNamespace(ctx, e.client, "another-", exempt)
		return errors.Join(err, createNode(ctx, e.client, w.others[i]))
	})
	return w, errors.Join(err, createPolicy(ctx, e.client, w.namespace, mode))
}

// growTo creates objects until there are count.
func (w *crowd) growTo(ctx context.Context, axis Axis, count int) error {
	from := w.counts[axis]
	w.counts[axis] = max(from, count)
	return each(ctx, count-from, 0, func(ctx context.Context, i int) (err error) {
		switch number := from + i; axis {
		case AxisPolicies:
			return w.addPolicy(ctx, number)
		case AxisUnrelated:
			_, err = createPod(ctx, w.c, unrelatedPod(w.namespace, number), nil)
		case AxisFinished:
			_, err = createPod(ctx, w.c, w.candidate("finished", number), finishes)
		default:
			_, err = createPod(ctx, w.c, w.candidate("candidate", number), runs)
		}
		return err
	})
}

// candidate is a Job-type pod. All namespaces have as many.
func (w *crowd) candidate(prefix string, number int) *corev1.Pod {
	pod := newPod(w.namespace, fmt.Sprintf("%s-%05d", prefix, number))
	if i := number % (len(w.others) + 1); i > 0 {
		pod.Namespace, pod.Spec.NodeName = w.others[i-1], w.others[i-1]
	}
	return pod
}

// addPolicy creates a policy. The first ones select the candidates of the other namespaces. The rest select no pod: half of them
// are in the namespace of the completing pods and match one label of two, and half are spread over the others.
func (w *crowd) addPolicy(ctx context.Context, number int) error {
	if number <= len(w.others) {
		return createPolicy(ctx, w.e.client, w.others[number-1], w.mode)
	}
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("policy-%05d", number)}}
	if number%2 == 0 {
		policy.Namespace = w.others[number/2%len(w.others)]
	}
	policy.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl", "job-name": fmt.Sprintf("another-%05d", number)}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: sidecar}}
	if err := w.e.client.Create(ctx, policy); err != nil {
		return fmt.Errorf("create a policy: %w", err)
	}
	return nil
}

// unrelatedPod is a pod of a Deployment, which declares no sidecar. It has no further status: another write per pod would
// only add to what contenders that read all pods read.
func unrelatedPod(namespace string, number int) *corev1.Pod {
	pod := newUndeclaredPod(namespace, fmt.Sprintf("web-%05d", number))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Labels = map[string]string{"app": "web", "team": "shop", "pod-template-hash": "7c9d8b6f5"}
	return pod
}
