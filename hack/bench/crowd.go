// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// crowd is the pods or policies that exist while other pods complete. It only grows. The completing pods are in its namespace
// and match its policy, so that code that reads all pods of a policy or namespace reads the crowd.
type crowd struct {
	e         *environment
	c         *kubernetes.Clientset
	axis      Axis
	namespace string
	others    []string // the other namespaces with policies
	count     int
}

// crowdSpaces is the number of other namespaces over which half of the policies is spread.
const crowdSpaces = 10

// newCrowd creates the namespaces, and the policy that selects the completing pods and all candidates.
func newCrowd(ctx context.Context, e *environment, axis Axis) (*crowd, error) {
	c, err := reporters(e.config)
	if err != nil {
		return nil, err
	}
	w := &crowd{e: e, c: c, axis: axis}
	if w.namespace, err = createNamespace(ctx, e.client, "crowd-", exempt); err != nil {
		return nil, err
	}
	if axis == AxisPolicies {
		w.count = 1
		for range crowdSpaces {
			other, err := createNamespace(ctx, e.client, "crowd-", exempt)
			if err != nil {
				return nil, err
			}
			w.others = append(w.others, other)
		}
	}
	return w, createPolicy(ctx, e.client, w.namespace, v1alpha1.ModeCRR)
}

// growTo creates objects until there are count.
func (w *crowd) growTo(ctx context.Context, count int) error {
	from := w.count
	if count <= from {
		return nil
	}
	w.count = count
	if w.axis == AxisCandidates {
		_, err := createPods(ctx, w.c, w.namespace, numbered("candidate", from, count), newPod)
		return err
	}
	return each(ctx, count-from, 0, func(ctx context.Context, i int) error {
		if w.axis == AxisPolicies {
			return w.addPolicy(ctx, from+i)
		}
		if _, err := w.c.CoreV1().Pods(w.namespace).Create(ctx, unrelatedPod(w.namespace, from+i), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a pod: %w", err)
		}
		return nil
	})
}

// addPolicy creates a policy that selects no pod. Half of them are in the namespace of the pods and match one label of two.
// The others are in namespaces without pods.
func (w *crowd) addPolicy(ctx context.Context, number int) error {
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
