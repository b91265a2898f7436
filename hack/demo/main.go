// SPDX-License-Identifier: Apache-2.0

// Command demo shows what the operator is for: two Jobs with the same pod, of which only the one that a policy selects
// becomes Complete. `make demo` runs it on the local cluster.
//
// It exits 0 only if that is what it has seen.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	// timeLimit is for everything after the last demonstration has been removed.
	timeLimit = time.Minute
	// removalLimit is for the last demonstration to be removed.
	removalLimit = time.Minute
	// hangingFor is how long after the end of its main container the Job without a policy is watched.
	hangingFor = 5 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demonstration failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig, err := findKubeconfig()
	if err != nil {
		return err
	}
	cluster, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	if err := removeLast(ctx, cluster); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done after %s", timeLimit))
	defer cancel()
	if err := create(ctx, cluster); err != nil {
		return err
	}
	introduce()
	if err := newTimeline(cluster).run(ctx); err != nil {
		return err
	}
	kubectl := findKubectl(kubeconfig)
	if err := kubectl.showPolicies(ctx); err != nil {
		return err
	}
	kubectl.showNextSteps()
	return nil
}

// findKubeconfig returns the kubeconfig of the environment, or else that of the local cluster.
func findKubeconfig() (string, error) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = filepath.Join(".cluster", "kubeconfig")
	}
	absolute, err := filepath.Abs(kubeconfig)
	if err != nil {
		return "", fmt.Errorf("find the kubeconfig: %w", err)
	}
	if _, err := os.Stat(absolute); err != nil {
		return "", fmt.Errorf("no cluster to show it on; `make demo` brings one up: %w", err)
	}
	return absolute, nil
}

func connect(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = "sidecar-termination-demo"
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), v1alpha1.AddToScheme(types)); err != nil {
		return nil, fmt.Errorf("register the types: %w", err)
	}
	cluster, err := client.New(config, client.Options{Scheme: types})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return cluster, nil
}
