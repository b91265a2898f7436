//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OperatorNamespace is where the operator runs.
const OperatorNamespace = "sidecar-termination-system"

const (
	operatorPodPrefix = "sidecar-termination-controller-manager-"
	operatorTimeout   = 2 * time.Minute
	podLogDirectory   = "/var/log/pods"
)

var errNoOperator = errors.New("no operator pod is ready (deploy it with `make deploy`)")

// operatorPod returns the pod of the operator that is ready.
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
		if strings.HasPrefix(pod.Name, operatorPodPrefix) && pod.DeletionTimestamp == nil && ready {
			return pod, nil
		}
	}
	return nil, errNoOperator
}

// OperatorPod returns the pod of the operator.
func (t *Test) OperatorPod() *corev1.Pod {
	t.Helper()
	pod, err := t.operatorPod(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// DeleteOperatorPod deletes the pod of the operator and does not wait for the next one.
func (t *Test) DeleteOperatorPod() {
	t.Helper()
	if err := t.Client.Delete(t.Context(), t.OperatorPod()); err != nil {
		t.Fatalf("Delete the pod of the operator: %v", err)
	}
}

// WaitForOperator waits until a pod of the operator is ready.
func (t *Test) WaitForOperator() {
	t.Helper()
	t.Eventually("the operator to be ready", operatorTimeout, func(ctx context.Context) error {
		_, err := t.operatorPod(ctx)
		return err
	})
}

// SetOperatorVariable gives an environment variable of the operator another value, until the test ends, and waits for the
// operator that has it.
func (t *Test) SetOperatorVariable(name, value string) {
	t.Helper()
	before := t.setOperatorVariable(t.Context(), name, value)
	t.Cleanup(func() { t.setOperatorVariable(context.Background(), name, before) })
}

// setOperatorVariable returns the value that the variable had.
func (t *Test) setOperatorVariable(ctx context.Context, name, value string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: OperatorNamespace, Name: strings.TrimSuffix(operatorPodPrefix, "-")}
	if err := t.Client.Get(ctx, key, deployment); err != nil {
		t.Fatalf("Get the Deployment of the operator: %v", err)
	}
	old, variables := deployment.DeepCopy(), deployment.Spec.Template.Spec.Containers[0].Env
	i := slices.IndexFunc(variables, func(v corev1.EnvVar) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("The operator has no variable %s", name)
	}
	before := variables[i].Value
	variables[i].Value = value
	if err := t.Client.Patch(ctx, deployment, client.StrategicMergeFrom(old)); err != nil {
		t.Fatalf("Set %s of the operator: %v", name, err)
	}
	if err := poll(ctx, func(ctx context.Context) error {
		if err := t.Client.Get(ctx, key, deployment); err != nil {
			return err
		}
		if status := deployment.Status; status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas != 1 || status.ReadyReplicas != 1 || status.Replicas != 1 {
			return fmt.Errorf("the Deployment has the status %+v", status)
		}
		return nil
	}); err != nil {
		t.Fatalf("Wait for the operator with %s=%q: %v", name, value, err)
	}
	return before
}

// OperatorLog returns the last lines of the operator's log, or why they cannot be had.
func (c *Cluster) OperatorLog(ctx context.Context, lines int64) string {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(OperatorNamespace)); err != nil {
		return err.Error()
	}
	var out strings.Builder
	for i := range pods.Items {
		name := pods.Items[i].Name
		log, err := c.Clientset.CoreV1().Pods(OperatorNamespace).GetLogs(name, &corev1.PodLogOptions{TailLines: ptr.To(lines)}).DoRaw(ctx)
		if err != nil {
			log = []byte(logOfNode(name, int(lines), err))
		}
		fmt.Fprintf(&out, "%s\n%s\n", name, log)
	}
	return out.String()
}

// logOfNode reads the log from the node's directory, for nodes whose kubelet cannot be reached.
func logOfNode(pod string, lines int, reason error) string {
	files, _ := filepath.Glob(filepath.Join(podLogDirectory, OperatorNamespace+"_"+pod+"_*", "*", "*.log"))
	if len(files) == 0 {
		return fmt.Sprintf("no log: %v", reason)
	}
	slices.Sort(files)
	data, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		return fmt.Sprintf("no log: %v", err)
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
