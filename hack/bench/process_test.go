// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// callerDirectory is set in the process that TestProcessesEndWithTheBenchmark starts as the benchmark.
const callerDirectory = "BENCH_TEST_DIRECTORY"

func TestProcessesEndWithTheBenchmark(t *testing.T) {
	if directory := os.Getenv(callerDirectory); directory != "" {
		beTheBenchmark(t, directory)
	}
	directory := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	caller, err := process.Start(process.Command{
		Path: program, Arguments: []string{"-test.run=^" + t.Name() + "$"}, Log: filepath.Join(directory, "caller.log"),
		Environment: []string{callerDirectory + "=" + directory, "PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Stop(context.WithoutCancel(t.Context()), caller, 0) })
	var child process.Identity
	for !child.Alive() {
		if !caller.Alive() {
			log, _ := os.ReadFile(filepath.Join(directory, "caller.log"))
			t.Fatalf("the benchmark ended: %s", log)
		}
		if child, err = process.Load(filepath.Join(directory, "child")); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	t.Cleanup(func() { _ = process.Stop(context.WithoutCancel(t.Context()), child, 0) })
	if err := process.Stop(t.Context(), caller, 0); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return !child.Alive(), nil
	})
	if err != nil {
		t.Errorf("the process outlived the benchmark: %v", err)
	}
}

// beTheBenchmark launches a process, records it, and waits to be killed.
func beTheBenchmark(t *testing.T, directory string) {
	t.Helper()
	log := filepath.Join(directory, "child.log")
	healthy := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		if content, _ := os.ReadFile(log); string(content) != "started\n" {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	child, err := launch(t.Context(), process.Command{Path: "/bin/sh", Arguments: []string{"-c", "echo started; exec sleep 1000"}, Log: log}, healthy.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Save(filepath.Join(directory, "child")); err != nil {
		t.Fatal(err)
	}
	select {}
}
