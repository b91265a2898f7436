// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// TestMain lets the tests start the contender floor: it is this program with another command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "floor" {
		main()
		return
	}
	os.Exit(m.Run())
}

// startShort starts an API server with what plays OpenKruise's webhook, and builds the operator.
func startShort(t *testing.T) (*environment, programs) {
	t.Helper()
	binaries := os.Getenv("KUBEBUILDER_ASSETS")
	if binaries == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set, so there is no API server: run it through make bench-short")
	}
	operator := filepath.Join(t.TempDir(), "manager")
	if output, err := exec.CommandContext(t.Context(), "go", "-C", "../..", "build", "-o", operator, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v: %s", err, output)
	}
	e, err := startServer(t.Context(), binaries, filepath.Join("..", "..", "config", "crd", "bases"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := apiextensionsv1.AddToScheme(e.client.Scheme()); err != nil {
		t.Fatal(err)
	}
	testenv.NewKruise(t, e.client).Install(t)
	return e, programs{operator: operator}
}

// Asserts on counts only, never on time.
func TestModeCosts(t *testing.T) {
	e, p := startShort(t)
	r, err := p.start(t.Context(), e, ContenderOperator)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		if err := r.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	eachModeCostsOneWritePerPod(t, e, r, ContenderOperator)
	t.Run("requests do not grow with the cluster", func(t *testing.T) { requestsDoNotGrow(t, e, r) })
	stop()
	t.Run("floor", func(t *testing.T) {
		r, err := p.start(t.Context(), e, ContenderFloor)
		if err != nil {
			t.Fatal(err)
		}
		eachModeCostsOneWritePerPod(t, e, r, ContenderFloor)
		if err := r.stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("no pod is missed or acted on twice when the leader goes", func(t *testing.T) { noPodIsMissedOrTwice(t, e, p) })
}

// What the operator asks of the API server depends on the pods that complete, and not on those that are around.
func requestsDoNotGrow(t *testing.T, e *environment, r *running) {
	t.Helper()
	w, err := newCrowd(t.Context(), e, v1alpha1.ModeCRR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{0, 300} {
		if err := w.growTo(t.Context(), AxisCandidates, count); err != nil {
			t.Fatal(err)
		}
		run, err := completeAndRemove(t.Context(), w, r, ContenderOperator, Scenario{Mode: v1alpha1.ModeCRR, Pods: 30})
		if err != nil {
			t.Fatalf("among %d candidates: %v; %s", count, err, tail(r.measured.log))
		}
		t.Logf("among %d candidates: requests per pod %v, reconciles per pod %.2f", count, run.Requests, run.Reconciles)
		for request, per := range run.Requests {
			// The webhook that stands in for OpenKruise's reads each pod from the API server. How often a status is written
			// depends on how long this takes.
			if !strings.HasPrefix(request, "GET ") && !strings.Contains(request, "policies/status") && per > 1 {
				t.Errorf("among %d candidates: %s: got %v per pod, want at most 1", count, request, per)
			}
		}
		if run.Reconciles <= 0 || run.Reconciles > 4 {
			t.Errorf("among %d candidates: got %v reconciles per pod, want more than 0 and at most 4", count, run.Reconciles)
		}
	}
}

// The other replica acts on each pod, and no pod is acted on twice. A leader that is killed is left to make bench: its lease
// takes long to expire.
func noPodIsMissedOrTwice(t *testing.T, e *environment, p programs) {
	t.Helper()
	run, err := handOver(t.Context(), e, p, syscall.SIGTERM, handoverBefore+handoverRate)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", run)
	if run.Missed != 0 || run.Twice != 0 {
		t.Errorf("missed %d pods, acted twice on %d", run.Missed, run.Twice)
	}
}

// modePods is how many pods complete by each mode.
const modePods = 50

// The operator as it is built costs one write per pod by each mode, and so does the floor.
func eachModeCostsOneWritePerPod(t *testing.T, e *environment, r *running, contender Contender) {
	t.Helper()
	for mode, write := range map[v1alpha1.Mode]string{
		v1alpha1.ModeCRR:      "POST containerrecreaterequests",
		v1alpha1.ModePodPhase: "PATCH pods/status",
		v1alpha1.ModeImage:    "PATCH pods",
	} {
		t.Run(string(mode), func(t *testing.T) {
			run, err := bench(t.Context(), e, r, contender, Scenario{Mode: mode, Pods: modePods})
			if err != nil {
				t.Fatalf("%v; %s", err, tail(r.measured.log))
			}
			t.Logf("requests per pod %v, reconciles per pod %.2f, watched %+v", run.Requests, run.Reconciles, run.Watched)
			if got := run.Requests[write]; got != 1 {
				t.Errorf("%s: got %v per pod, want 1", write, got)
			}
			if got := run.Requests["POST events"] + run.Requests["PATCH events"]; got > 1 {
				t.Errorf("events: got %v per pod, want at most 1", got)
			}
			// A write that conflicts with a change of the pod is repeated, on average at most once.
			if contender == ContenderOperator && (run.Reconciles <= 0 || run.Reconciles > 4) {
				t.Errorf("reconciles: got %v per pod, want more than 0 and at most 4", run.Reconciles)
			}
			for request, count := range run.Requests {
				// The webhook that stands in for OpenKruise's reads each pod from the API server, and a watch that the API
				// server ends at once is restarted after a list.
				read := strings.HasPrefix(request, "GET ") || strings.HasPrefix(request, "LIST ") && count <= 1.0/modePods
				if strings.Contains(request, " pods") && request != write && !read && !strings.HasSuffix(request, "(409)") {
					t.Errorf("%s: got %v per pod, want none; %s", request, count, tail(r.measured.log))
				}
			}
		})
	}
}
