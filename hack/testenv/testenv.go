// SPDX-License-Identifier: Apache-2.0

// Package testenv has what the tests of all packages share: it runs integration tests against kube-apiserver and etcd, where no
// kubelet or controller changes what a test writes.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/kustomize/api/krusty"

	"github.com/sidecar-termination/operator/hack/kustomize"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// startTimeout limits the start and stop of the server. The default of 20 seconds is too short on a busy machine.
const startTimeout = 2 * time.Minute

// Long reports whether LONG=1 asks for tests at full length, which takes hours.
func Long() bool { return os.Getenv("LONG") == "1" }

// SkipUnlessLong skips a test that takes long, or that shows what a faster test has shown of another case, unless Long.
func SkipUnlessLong(tb testing.TB) {
	tb.Helper()
	if !Long() {
		tb.Skip("Needs LONG=1")
	}
}

// Run starts an API server with the CRDs of a directory, passes its configuration on, runs the tests and stops the server. It
// returns the exit code for TestMain, which is non-zero if the server does not start.
func Run(m *testing.M, crds string, use func(*rest.Config)) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set, so there is no API server: run it through make test-integration")
		return 1
	}
	environment := &envtest.Environment{
		CRDDirectoryPaths:        []string{crds},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: startTimeout,
	}
	code := 0
	config, err := environment.Start()
	if err == nil {
		use(config)
		code = m.Run()
	}
	// An environment whose start has failed may have servers that run.
	if err := errors.Join(err, environment.Stop()); err != nil {
		fmt.Fprintf(os.Stderr, "run the API server: %v\n", err)
		return 1
	}
	return code
}

// Eventually polls until the check returns nil, and fails the test with the last error after a minute.
func Eventually(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	if err := progress.Poll(context.WithoutCancel(tb.Context()), 20*time.Millisecond, time.Minute, check); err != nil {
		tb.Fatalf("timed out waiting: %s: %v", what, err)
	}
}

// FreeAddress returns an unused loopback address.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		tb.Fatal(err)
	}
	return address
}

// Render returns the objects of the kustomization in a directory, in the order of `kustomize build`. Two calls must not run in parallel.
func Render(tb testing.TB, directory string) []*unstructured.Unstructured {
	tb.Helper()
	options := krusty.MakeDefaultOptions()
	// The default overrides the order of a kustomization with a warning.
	options.Reorder = krusty.ReorderOptionUnspecified
	objects, err := kustomize.Render(directory, options)
	if err != nil {
		tb.Fatal(err)
	}
	return objects
}

// KeptConnections ignores goroutines of idle keep-alive connections of the test's clients and servers, which are not leaks.
func KeptConnections() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*http2serverConn).readFrames"),
	}
}
