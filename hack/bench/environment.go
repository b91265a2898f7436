// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// nodeName is the node of all pods. It has no kubelet, so only the benchmark writes their status.
const nodeName = "no-kubelet"

// environment is an API server and etcd on the loopback interface, with clients for them.
type environment struct {
	server    *envtest.Environment
	directory string // of kubeconfigs, logs and programs
	config    *rest.Config
	client    client.WithWatch
	apiServer process.Identity
}

// startServer starts an API server with the operator's kinds and one node. The binaries are those of envtest. The caller
// must call stop.
func startServer(ctx context.Context, binaries, crds string) (*environment, error) {
	directory, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	programs, err := writeScripts(binaries, directory)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	e := &environment{directory: directory, server: &envtest.Environment{
		BinaryAssetsDirectory: programs, CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: time.Minute, ControlPlaneStopTimeout: time.Minute,
	}}
	// The default of one worker may not delete thousands of objects within the time limit of a request.
	e.server.ControlPlane.GetAPIServer().Configure().Set("delete-collection-workers", strconv.Itoa(writers))
	// The default quota of 2 GiB is too small for the part large: etcd keeps old versions of objects for minutes.
	e.server.ControlPlane.Etcd = &envtest.Etcd{}
	e.server.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", strconv.Itoa(16<<30))
	config, err := e.server.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), e.stop())
	}
	if err := e.prepare(ctx, config); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// writeScripts returns a directory with scripts that run the binaries, and that end with the benchmark. envtest has no setting
// for that.
func writeScripts(binaries, directory string) (string, error) {
	binaries, err := filepath.Abs(binaries)
	if err != nil {
		return "", fmt.Errorf("find the binaries: %w", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		words := endingWithCaller(filepath.Join(binaries, name))
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", strings.Join(words, "' '"))
		if err := os.WriteFile(filepath.Join(directory, name), []byte(script), 0o755); err != nil {
			return "", fmt.Errorf("write a program: %w", err)
		}
	}
	return directory, nil
}

// connect makes the clients.
func (e *environment) connect(config *rest.Config) error {
	// No client-side limit may slow a load down.
	e.config = rest.CopyConfig(config)
	e.config.QPS = -1
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme, crr.AddToScheme} {
		if err := add(types); err != nil {
			return fmt.Errorf("register types: %w", err)
		}
	}
	var err error
	if e.client, err = client.NewWithWatch(e.config, client.Options{Scheme: types}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return nil
}

func (e *environment) prepare(ctx context.Context, config *rest.Config) error {
	if err := e.connect(config); err != nil {
		return err
	}
	port := "--secure-port=" + e.server.ControlPlane.GetAPIServer().Port
	found, err := process.Find(func(arguments []string) bool {
		return filepath.Base(arguments[0]) == "kube-apiserver" && slices.Contains(arguments, port)
	})
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("find the API server's process: %d have %s", len(found), port))
	}
	e.apiServer = found[0]
	return createNode(ctx, e.client, nodeName)
}

// stop ends the API server and removes all files but the logs of a failure.
func (e *environment) stop() error {
	return errors.Join(e.server.Stop(), os.RemoveAll(e.directory))
}

// kubeconfig writes the kubeconfig of an administrator and returns its path. All contenders have the same permissions, so
// that authorization costs the same.
func (e *environment) kubeconfig(name string) (string, error) {
	user, err := e.server.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return "", fmt.Errorf("add user %s: %w", name, err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("make the kubeconfig of %s: %w", name, err)
	}
	file := filepath.Join(e.directory, name+".kubeconfig")
	return file, os.WriteFile(file, content, 0o600)
}

// freeAddresses returns free addresses of the loopback interface.
func freeAddresses(count int) ([]string, error) {
	var free []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = listener.Close() }()
		free = append(free, listener.Addr().String())
	}
	return free, nil
}
