//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/internal/testenv"
)

const (
	operatorAccount   = "sidecar-termination-controller-manager"
	operatorLeads     = `leader_election_master_status{name="sidecar-termination-operator.sidecartermination.dev"} 1`
	operatorStopGrace = 30 * time.Second
	operatorTokenLife = 3 * time.Hour
	buildTimeout      = 30 * time.Minute
)

// clockOffsetVariable is read by an operator that was built by BuildOperatorWithClock: the seconds by which its clock is ahead.
const clockOffsetVariable = "CLOCK_OFFSET_SECONDS"

// OperatorProcess is a copy of the operator that runs as a process of this machine with the rights of the deployed one. It
// can be killed as often as a test likes, while the kubelet would wait longer and longer before it starts a container again.
type OperatorProcess struct {
	test    *Test
	command process.Command
	probes  string
	metrics string
	running process.Identity
}

// StandInForOperator takes the deployed operator away until the test ends, so that processes can take its place.
func (t *Test) StandInForOperator() {
	t.Helper()
	t.Cleanup(func() { t.scaleOperator(context.Background(), 1) })
	t.scaleOperator(t.Context(), 0)
}

func (t *Test) scaleOperator(ctx context.Context, replicas int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: OperatorNamespace, Name: strings.TrimSuffix(operatorPodPrefix, "-")}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := poll(ctx, func(ctx context.Context) error { return t.Client.Patch(ctx, deployment, patch) }); err != nil {
		t.Fatalf("Scale the operator to %d: %v", replicas, err)
	}
	if err := poll(ctx, func(ctx context.Context) error {
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return err
		}
		if status := deployment.Status; status.ObservedGeneration < deployment.Generation || status.Replicas != replicas || status.ReadyReplicas != replicas {
			return fmt.Errorf("the Deployment has the status %+v", status)
		}
		return nil
	}); err != nil {
		t.Fatalf("Wait for %d replicas of the operator: %v", replicas, err)
	}
}

// BuildOperator builds the operator with the race detector, and returns the program.
func (t *Test) BuildOperator() string {
	t.Helper()
	return t.buildOperator("-race")
}

// BuildOperatorWithClock builds an operator whose clock can be set apart from the machine's. All that is different is
// time.Now of the standard library, for the whole program. It has no race detector: everything would have to be compiled anew.
func (t *Test) BuildOperatorWithClock() string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("Find the Go toolchain: %v", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatalf("Read the clock of the standard library: %v", err)
	}
	changed := string(source)
	for _, change := range []struct{ old, new string }{
		{"import (\n", "import (\n\t\"syscall\"\n"},
		{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += clockOffset\n"},
	} {
		if strings.Count(changed, change.old) != 1 {
			t.Fatalf("This version of Go has no %q in %s", change.old, original)
		}
		changed = strings.Replace(changed, change.old, change.new, 1)
	}
	changed += `
var clockOffset = func() int64 {
	value, _ := syscall.Getenv("` + clockOffsetVariable + `")
	seconds, _ := atoi(value)
	return int64(seconds)
}()
`
	directory := t.TempDir()
	replacement := filepath.Join(directory, "time.go")
	overlay := filepath.Join(directory, "overlay.json")
	content, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{replacement: []byte(changed), overlay: content} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return t.buildOperator("-overlay=" + overlay)
}

func (t *Test) buildOperator(flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "manager")
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", append(append([]string{"build", "-buildvcs=false"}, flags...), "-o", program, ".")...)
	build.Dir = t.Repository
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("Build the operator: %v\n%s", err, output)
	}
	return program
}

// NewOperatorProcess returns a copy of the operator that has not been started. It is stopped when the test ends.
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
			t.Error("The race detector has found a race in the operator")
		}
		if t.Failed() {
			t.Logf("Log of the operator's process:\n%s", operator.LogTail())
		}
	})
	return operator
}

// writeOperatorKubeconfig lets the process be who the deployed operator is.
func (t *Test) writeOperatorKubeconfig(file string) {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(operatorTokenLife.Seconds())),
	}}
	token, err := t.Clientset.CoreV1().ServiceAccounts(OperatorNamespace).CreateToken(t.Context(), operatorAccount, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Get a token of the operator: %v", err)
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

// SetClock has an operator of BuildOperatorWithClock start with its clock ahead by the offset.
func (o *OperatorProcess) SetClock(offset time.Duration) {
	o.command.Environment = append(o.command.Environment, fmt.Sprintf("%s=%d", clockOffsetVariable, int64(offset.Seconds())))
}

// Start starts the operator unless it runs, and does not wait for it.
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

// LogTail returns the last lines that the operator has written, in all its starts.
func (o *OperatorProcess) LogTail() string {
	log, _ := os.ReadFile(o.command.Log)
	lines := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-dumpedLogLines):], "\n")
}

// Alive reports whether the operator runs.
func (o *OperatorProcess) Alive() bool { return o.running.Alive() }

// Kill ends the operator by SIGKILL.
func (o *OperatorProcess) Kill() {
	o.test.Helper()
	if err := process.Kill(o.test.Context(), o.running); err != nil {
		o.test.Fatalf("Kill the operator: %v", err)
	}
}

// Stop ends the operator by SIGTERM, so that it gives its lease back.
func (o *OperatorProcess) Stop() {
	o.test.Helper()
	if err := process.Stop(o.test.Context(), o.running, operatorStopGrace); err != nil {
		o.test.Fatalf("Stop the operator: %v", err)
	}
}

// WaitForReady waits until the operator's caches are filled.
func (o *OperatorProcess) WaitForReady() {
	o.test.Helper()
	o.test.Eventually("the operator's process to be ready", operatorTimeout, func(ctx context.Context) error {
		_, err := get(ctx, "http://"+o.probes+"/readyz")
		return err
	})
}

// Leads reports whether the operator is the one that acts.
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
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), nil
}
