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

// crowd is what stands around while pods complete: pods, or policies. It only grows. The pods that complete are in its
// namespace too, under its policy, so that whatever looks at all pods of a policy or a namespace looks at the crowd.
type crowd struct {
	e         *environment
	c         *kubernetes.Clientset
	axis      Axis
	namespace string
	others    []string // namespaces of policies that are not in the crowd's
	count     int
}

// crowdSpaces is over how many other namespaces one half of the policies is spread.
const crowdSpaces = 10

// exempt is a label of namespaces that keeps OpenKruise's webhooks from pods, for pods are made while it does not run.
var exempt = map[string]string{"control-plane": "bench"}

// newCrowd makes the namespaces, and the policy that selects the pods that complete and all candidates.
func newCrowd(ctx context.Context, e *environment, axis Axis) (*crowd, error) {
	c, err := reporters(e.config)
	if err != nil {
		return nil, err
	}
	w := &crowd{e: e, c: c, axis: axis, namespace: "crowd"}
	names := []string{w.namespace}
	if axis == AxisPolicies {
		w.count = 1
		for i := range crowdSpaces {
			w.others = append(w.others, fmt.Sprintf("crowd-%d", i))
		}
		names = append(names, w.others...)
	}
	for _, name := range names {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: exempt}}
		if err := e.client.Create(ctx, space); err != nil {
			return nil, fmt.Errorf("create a namespace: %w", err)
		}
	}
	return w, createPolicy(ctx, e.client, w.namespace, v1alpha1.ModeCRR)
}

// growTo adds what is missing.
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

// addPolicy adds a policy that selects no pod: each second one in the namespace of the pods, by labels of which the pods have
// one, and all others in other namespaces, where there are no pods.
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

// unrelatedPod is a pod of a Deployment. It gets no status beyond the first: that costs as much again as the pod itself, and
// would only add to what is read by those who read all pods.
func unrelatedPod(namespace string, number int) *corev1.Pod {
	pod := newPod(namespace, fmt.Sprintf("web-%05d", number))
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Labels = map[string]string{"app": "web", "team": "shop", "pod-template-hash": "7c9d8b6f5"}
	for i := range pod.Spec.Containers {
		// Nobody marks a sidecar of a pod that never ends.
		env := &pod.Spec.Containers[i].Env
		if len(*env) > 0 && (*env)[0].Name == v1alpha1.EnvTerminate {
			*env = (*env)[1:]
		}
	}
	return pod
}
