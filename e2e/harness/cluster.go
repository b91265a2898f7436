//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// Images on the cluster's nodes.
const (
	BusyboxImage   = "localhost/busybox:1"
	QuickExitImage = "localhost/quick-exit:1"
)

// Cluster is the connection to the cluster under test.
type Cluster struct {
	// Config is the connection as an administrator.
	Config *rest.Config
	// Client reads and writes API objects, never from a cache.
	Client client.Client
	// Repository is the root of the operator's repository.
	Repository string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
}

// Connect returns the connection that all tests share.
var Connect = sync.OnceValues(connect)

func connect() (*Cluster, error) {
	log.SetLogger(logr.Discard())
	repository, err := layout.Repository()
	if err != nil {
		return nil, err
	}
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = layout.Layout{Repository: repository}.AdminKubeconfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s (bring up a cluster with `make cluster-up`): %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 500, 1000
	config.UserAgent = "sidecar-termination-e2e"
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return nil, fmt.Errorf("register the types: %w", err)
	}
	direct, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &Cluster{Config: config, Client: direct, Repository: repository, Kubeconfig: kubeconfig}, nil
}

// KubectlProgram returns the local cluster's kubectl if it exists, and otherwise the one on the PATH.
func (c *Cluster) KubectlProgram() string {
	program := layout.Layout{Repository: c.Repository}.Kubectl()
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if program, err := exec.LookPath("kubectl"); err == nil {
		return program
	}
	return "kubectl"
}

// TryKubectl runs kubectl as an administrator, and returns its output.
func (c *Cluster) TryKubectl(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, c.KubectlProgram(), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	output, err := command.CombinedOutput()
	return string(output), err
}

// StartRegistry starts an empty registry on the loopback interface until the test ends, and returns the prefix of its images. containerd
// uses plain HTTP there.
func StartRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(stdlog.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/"
}

// Push writes an image to its registry.
func (t *Test) Push(reference string, content v1.Image) {
	t.Helper()
	if err := crane.Push(content, reference, crane.WithContext(t.Context())); err != nil {
		t.Fatalf("Push %s: %v", reference, err)
	}
}
