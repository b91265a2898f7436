// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/time/rate"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// The operator as it is built costs one write per pod by each mode, and so do bare clients. Asserts on counts only, never on time.
func TestModeCosts(t *testing.T) {
	binaries := os.Getenv("KUBEBUILDER_ASSETS")
	if binaries == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set, so there is no API server: run it through make test-integration")
	}
	repository := filepath.Join("..", "..")
	e, err := startServer(t.Context(), binaries, repository)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	e.operatorPath = filepath.Join(t.TempDir(), "operator")
	if output, err := exec.CommandContext(t.Context(), "go", "-C", repository, "build", "-o", e.operatorPath, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v: %s", err, output)
	}
	if err := apiextensionsv1.AddToScheme(e.client.Scheme()); err != nil {
		t.Fatal(err)
	}
	testenv.NewKruise(t, e.client).Install(t)
	if err := e.start(t.Context(), contenderOperator); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.stopContender(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for mode, write := range map[v1alpha1.Mode]string{
		v1alpha1.ModeCRR:      "POST containerrecreaterequests",
		v1alpha1.ModePodPhase: "PATCH pods/status",
		v1alpha1.ModeImage:    "PATCH pods",
	} {
		t.Run(string(mode), func(t *testing.T) { costsOneWritePerPod(t, e, mode, write) })
	}
}

func costsOneWritePerPod(t *testing.T, e *environment, mode v1alpha1.Mode, write string) {
	t.Helper()
	const pods = 50
	before, err := e.requestsServed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.end(t.Context(), contenderOperator, mode, load{pods: pods, rate: rate.Inf})
	if err != nil {
		t.Fatal(err)
	}
	after, err := e.requestsServed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", run)
	per := func(request string) float64 { return run["requests "+request+" per pod"] }
	want := 1.0
	if mode == v1alpha1.ModePodPhase {
		want += 2 // the benchmark's reports. The operator marks pods before their main containers end, when the burst has not begun.
	}
	if got := (after["requests "+write] - before["requests "+write]) / pods; got != want {
		t.Errorf("%s: got %v per pod, want %v", write, got, want)
	}
	if got := per("POST events") + per("PATCH events"); got > 1 {
		t.Errorf("events: got %v per pod, want at most 1", got)
	}
	for name, count := range run {
		request, ok := strings.CutPrefix(name, "requests ")
		request = strings.TrimSuffix(request, " per pod")
		// The webhook that stands in for OpenKruise's reads each pod. A write that conflicts with a change of the pod is repeated.
		read := strings.HasPrefix(request, "GET ") || strings.HasPrefix(request, "LIST ") && count <= 0.02
		if ok && count != 0 && strings.Contains(request, " pods") && request != write && !read && !strings.HasSuffix(request, "(409)") {
			t.Errorf("%s: got %v per pod, want none", request, count)
		}
	}
}
