//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/settings"
)

// OperatorNamespace is where the operator runs.
const OperatorNamespace = settings.Namespace

const (
	operatorTimeout = 2 * time.Minute
	podLogDirectory = "/var/log/pods"
)

var errNoOperator = errors.New("no operator pod is ready (deploy it with `make cluster-deploy`)")

// operatorPod returns the operator's ready pod.
func (c *Cluster) operatorPod(ctx context.Context) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(OperatorNamespace)); err != nil {
		return nil, fmt.Errorf("list the pods of the operator: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
		if strings.HasPrefix(pod.Name, settings.DeploymentName+"-") && pod.DeletionTimestamp == nil && ready {
			return pod, nil
		}
	}
	return nil, errNoOperator
}

// OperatorPod returns the operator's ready pod.
func (t *Test) OperatorPod() *corev1.Pod {
	t.Helper()
	pod, err := t.operatorPod(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// DeleteOperatorPod deletes the operator's pod and does not wait for the next one.
func (t *Test) DeleteOperatorPod() {
	t.Helper()
	if err := t.Client.Delete(t.Context(), t.OperatorPod()); err != nil {
		t.Fatalf("Delete the operator's pod: %v", err)
	}
}

// WaitForOperator waits until the operator has a ready pod.
func (t *Test) WaitForOperator() {
	t.Helper()
	t.Eventually("the operator to be ready", operatorTimeout, func(ctx context.Context) error {
		_, err := t.operatorPod(ctx)
		return err
	})
}

// updateOperator changes the operator's Deployment and waits until it has the ready replicas and no others.
func (t *Test) updateOperator(ctx context.Context, replicas int32, change func(*appsv1.Deployment)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	deployment := OperatorDeployment()
	key := client.ObjectKeyFromObject(deployment)
	if err := poll(ctx, func(ctx context.Context) error {
		if err := t.getAgain(ctx, key, deployment); err != nil {
			return err
		}
		old := deployment.DeepCopy()
		change(deployment)
		return t.Client.Patch(ctx, deployment, client.StrategicMergeFrom(old))
	}); err != nil {
		t.Fatalf("Change the operator's Deployment: %v", err)
	}
	if err := poll(ctx, func(ctx context.Context) error {
		if err := t.getAgain(ctx, key, deployment); err != nil {
			return err
		}
		status := deployment.Status
		if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas != replicas || status.ReadyReplicas != replicas || status.Replicas != replicas {
			return fmt.Errorf("the Deployment has status %+v", status)
		}
		return nil
	}); err != nil {
		t.Fatalf("Wait for %d replicas of the operator: %v", replicas, err)
	}
}

// OperatorDeployment returns the operator's Deployment with its name only.
func OperatorDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: settings.DeploymentName}}
}
