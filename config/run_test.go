// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// startTimeout is how long the operator may take to become ready and to act, on a busy machine.
const startTimeout = time.Minute

func TestTheOperatorKnowsTheFlagsThatItIsStartedWith(t *testing.T) {
	program := build(t)
	for _, directory := range installations() {
		container := only[appsv1.Deployment](t, render(t, directory), "Deployment").Spec.Template.Spec.Containers[0]
		// The flags before --help are parsed first, and an unknown one is an error.
		output, err := exec.CommandContext(t.Context(), program, append(container.Args, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: started with %v: %v\n%s", directory, container.Args, err, output)
		}
	}
}

func TestTheOperatorWorksWithTheRightsThatItIsGranted(t *testing.T) {
	apply(t, "default")
	c, _ := newClient(t)
	health := freeAddress(t)
	var log bytes.Buffer
	operator := exec.CommandContext(t.Context(), build(t), "--leader-elect", "--leader-election-namespace="+namespace,
		"--metrics-bind-address=0", "--health-probe-bind-address="+health)
	operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigOfTheOperator(t))
	operator.Stdout, operator.Stderr = &log, &log
	if err := operator.Start(); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.SidecarTerminationPolicy{}
	policy.Namespace, policy.Name = "default", "rights"
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- operator.Wait() }()

	ready := eventually(ended, func() bool { return isReady(health) })
	reported := ready && eventually(ended, func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(policy), policy) == nil && policy.Status.ObservedGeneration > 0
	})
	// Fails where the operator has ended already, which the missing results tell as well.
	_ = operator.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("the operator did not end well: %v", err)
	}

	if !ready || !reported || strings.Contains(log.String(), "forbidden") {
		t.Errorf("ready: %t, reported on a policy: %t; its log must hold nothing forbidden:\n%s", ready, reported, &log)
	}
	lease := &coordinationv1.Lease{}
	name := client.ObjectKey{Namespace: namespace, Name: "sidecar-termination-operator.sidecartermination.dev"}
	if err := c.Get(t.Context(), name, lease); err != nil {
		t.Errorf("the lease that the role names: %v", err)
	}
}

// build builds the operator.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "manager")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v\n%s", err, output)
	}
	return program
}

// kubeconfigOfTheOperator lets its user act as the operator's ServiceAccount and as nothing more.
func kubeconfigOfTheOperator(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["server"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: server.CertData,
		ClientKeyData:         server.KeyData,
		Impersonate:           "system:serviceaccount:" + namespace + ":" + deployment,
		ImpersonateGroups:     []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	config.Contexts["operator"] = &clientcmdapi.Context{Cluster: "server", AuthInfo: "operator"}
	config.CurrentContext = "operator"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func isReady(address string) bool {
	response, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// eventually returns whether the condition comes true while the program runs.
func eventually(ended chan error, condition func() bool) bool {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if len(ended) > 0 {
			return false
		}
		if condition() {
			return true
		}
	}
	return false
}
