//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// OperatorNamespace is where the operator runs.
const OperatorNamespace = settings.Namespace

const (
	operatorTimeout   = 4 * time.Minute
	operatorLeads     = `leader_election_master_status{name="` + settings.LeaseName + `"} 1`
	operatorStopGrace = 30 * time.Second
	buildTimeout      = 30 * time.Minute
)

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
	return nil, errors.New("no operator pod is ready (deploy it with `make cluster-deploy`)")
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

// OperatorDeployment returns the operator's Deployment with its name only.
func OperatorDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: settings.DeploymentName}}
}

// StandInForOperator scales the deployed operator to zero until the test ends, so that processes can replace it.
func (t *Test) StandInForOperator() {
	t.Helper()
	t.Cleanup(func() { t.scaleOperator(1) })
	t.scaleOperator(0)
}

func (t *Test) scaleOperator(replicas int32) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := progress.Poll(context.Background(), pollInterval, 2*operatorTimeout, func(ctx context.Context) error {
		// Without a change, a patch only reads.
		deployment := OperatorDeployment()
		if err := t.Client.Patch(ctx, deployment, patch); err != nil {
			return err
		}
		status := deployment.Status
		if status.ObservedGeneration < deployment.Generation || status.ReadyReplicas != replicas || status.Replicas != replicas {
			return fmt.Errorf("the Deployment has status %+v", status)
		}
		return nil
	}); err != nil {
		t.Fatalf("Wait for %d replicas of the operator: %v", replicas, err)
	}
}

// OperatorProcess is an operator that runs as a process of this machine with the permissions of the deployed one. Tests can
// kill it repeatedly without the kubelet's restart backoff.
type OperatorProcess struct {
	test    *Test
	command process.Command
	probes  string
	metrics string
	running process.Identity
}

// BuildOperator builds the operator with the race detector, and returns the program's path.
func (t *Test) BuildOperator() string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "manager")
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-race", "-o", program, ".")
	build.Dir = t.Repository
	build.Env = append(os.Environ(), "CGO_ENABLED=1") // which the race detector needs
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("Build the operator: %v\n%s", err, output)
	}
	return program
}

// NewOperatorProcess returns an operator that is not started. It is stopped when the test ends.
func (t *Test) NewOperatorProcess(program string, flags ...string) *OperatorProcess {
	t.Helper()
	directory := t.TempDir()
	kubeconfig := t.WriteKubeconfig(func(config *clientcmdapi.Config) {
		for _, user := range config.AuthInfos {
			user.Impersonate = "system:serviceaccount:" + OperatorNamespace + ":" + settings.DeploymentName
		}
	})
	operator := &OperatorProcess{test: t, probes: testenv.FreeAddress(t), metrics: testenv.FreeAddress(t)}
	operator.command = process.Command{
		Path: program,
		Arguments: append([]string{
			"--quick-exit-image=" + QuickExitImage,
			"--leader-election-namespace=" + OperatorNamespace,
			"--health-probe-bind-address=" + operator.probes,
			"--metrics-bind-address=" + operator.metrics,
			"--metrics-authentication=Disabled",
		}, flags...),
		Environment: append(os.Environ(), "KUBECONFIG="+kubeconfig),
		Directory:   directory,
		Log:         filepath.Join(directory, "operator.log"),
	}
	t.Cleanup(func() {
		operator.Stop()
		log, _ := os.ReadFile(operator.command.Log)
		if strings.Contains(string(log), "WARNING: DATA RACE") {
			t.Error("The operator has a data race")
		}
		if t.Failed() {
			t.Logf("Log of the operator's process:\n%s", operator.LogTail())
		}
	})
	return operator
}

// Start starts the operator unless it runs, and does not wait until it is ready.
func (o *OperatorProcess) Start() {
	o.test.Helper()
	if o.running.Alive() {
		return
	}
	running, err := process.Start(o.command)
	if err != nil {
		o.test.Fatalf("Start the operator: %v", err)
	}
	o.running = running
}

// LogTail returns the last lines of the log, which covers all starts of the process.
func (o *OperatorProcess) LogTail() string { return process.Tail(o.command.Log, dumpedLogLines) }

// Alive reports whether the operator runs.
func (o *OperatorProcess) Alive() bool { return o.running.Alive() }

// Kill sends SIGKILL to the operator.
func (o *OperatorProcess) Kill() {
	o.test.Helper()
	o.end(0)
}

// Stop sends SIGTERM to the operator, so that it releases its lease.
func (o *OperatorProcess) Stop() {
	o.test.Helper()
	o.end(operatorStopGrace)
}

func (o *OperatorProcess) end(grace time.Duration) {
	o.test.Helper()
	if err := process.Stop(context.Background(), o.running, grace); err != nil {
		o.test.Errorf("Stop the operator: %v", err)
	}
}

// WaitForReady waits until the operator's caches are synced.
func (o *OperatorProcess) WaitForReady() {
	o.test.Helper()
	o.test.Eventually("the operator's process to be ready", operatorTimeout, func(ctx context.Context) error {
		_, err := get(ctx, "http://"+o.probes+"/readyz")
		return err
	})
}

// Leads reports whether the operator is the leader.
func (o *OperatorProcess) Leads() bool {
	metrics, err := get(o.test.Context(), "http://"+o.metrics+"/metrics")
	return err == nil && strings.Contains(metrics, operatorLeads)
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}
