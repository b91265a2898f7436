//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/testenv"
)

const (
	operatorLeads     = `leader_election_master_status{name="` + settings.LeaseName + `"} 1`
	operatorStopGrace = 30 * time.Second
	operatorTokenLife = 3 * time.Hour
	buildTimeout      = 30 * time.Minute
)

// OperatorProcess is an operator that runs as a process of this machine with the permissions of the deployed one. Tests can
// kill it repeatedly without the kubelet's restart backoff.
type OperatorProcess struct {
	test    *Test
	command process.Command
	probes  string
	metrics string
	running process.Identity
}

// StandInForOperator scales the deployed operator to zero until the test ends, so that processes can replace it.
func (t *Test) StandInForOperator() {
	t.Helper()
	t.Cleanup(func() { t.scaleOperator(context.Background(), 1) })
	t.scaleOperator(t.Context(), 0)
}

func (t *Test) scaleOperator(ctx context.Context, replicas int32) {
	t.Helper()
	t.updateOperator(ctx, replicas, func(deployment *appsv1.Deployment) { deployment.Spec.Replicas = &replicas })
}

// BuildOperator builds the operator with the race detector, and returns the program's path.
func (t *Test) BuildOperator() string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "manager")
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-race", "-o", program, ".")
	build.Dir = t.Repository
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("Build the operator: %v\n%s", err, output)
	}
	return program
}

// NewOperatorProcess returns an operator that is not started. It is stopped when the test ends.
func (t *Test) NewOperatorProcess(program string, flags ...string) *OperatorProcess {
	t.Helper()
	directory := t.TempDir()
	kubeconfig := filepath.Join(directory, "kubeconfig")
	t.writeOperatorKubeconfig(kubeconfig)
	operator := &OperatorProcess{test: t, probes: testenv.FreeAddress(t), metrics: testenv.FreeAddress(t)}
	operator.command = process.Command{
		Path: program,
		Arguments: append([]string{
			"--quick-exit-image=" + QuickExitImage,
			"--leader-election-namespace=" + OperatorNamespace,
			"--pre-pull-namespace=" + OperatorNamespace,
			"--health-probe-bind-address=" + operator.probes,
			"--metrics-bind-address=" + operator.metrics,
			"--metrics-authentication=Disabled",
		}, flags...),
		Environment: append(os.Environ(), "KUBECONFIG="+kubeconfig),
		Directory:   directory,
		Log:         filepath.Join(directory, "operator.log"),
	}
	t.Cleanup(func() {
		if err := process.Stop(context.Background(), operator.running, operatorStopGrace); err != nil {
			t.Errorf("Stop the operator: %v", err)
		}
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

// writeOperatorKubeconfig writes a kubeconfig with a token of the deployed operator's ServiceAccount.
func (t *Test) writeOperatorKubeconfig(file string) {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(operatorTokenLife.Seconds())),
	}}
	token, err := t.Clientset.CoreV1().ServiceAccounts(OperatorNamespace).CreateToken(t.Context(), settings.DeploymentName, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Get the operator's token: %v", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{
		Server: t.Config.Host, CertificateAuthority: t.Config.CAFile, CertificateAuthorityData: t.Config.CAData,
	}
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["operator"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "operator"}
	config.CurrentContext = "operator"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatalf("Write the kubeconfig of the operator: %v", err)
	}
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
func (o *OperatorProcess) LogTail() string {
	log, _ := os.ReadFile(o.command.Log)
	lines := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-dumpedLogLines):], "\n")
}

// Alive reports whether the operator runs.
func (o *OperatorProcess) Alive() bool { return o.running.Alive() }

// Kill sends SIGKILL to the operator.
func (o *OperatorProcess) Kill() {
	o.test.Helper()
	if err := process.Stop(o.test.Context(), o.running, 0); err != nil {
		o.test.Fatalf("Kill the operator: %v", err)
	}
}

// Stop sends SIGTERM to the operator, so that it releases its lease.
func (o *OperatorProcess) Stop() {
	o.test.Helper()
	if err := process.Stop(o.test.Context(), o.running, operatorStopGrace); err != nil {
		o.test.Fatalf("Stop the operator: %v", err)
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

// Metrics returns the operator's metrics.
func (o *OperatorProcess) Metrics() (string, error) {
	return get(o.test.Context(), "http://"+o.metrics+"/metrics")
}

// Leads reports whether the operator is the leader.
func (o *OperatorProcess) Leads() bool {
	metrics, err := o.Metrics()
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
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), nil
}
