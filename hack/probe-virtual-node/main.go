// SPDX-License-Identifier: Apache-2.0

// Command probe-virtual-node reports whether a node restarts a container whose image changed,
// which mode Image needs. It runs one small pod on the node, swaps an image, reports the
// result and removes the pod.
//
// It exits with 0 if mode Image works on the node, 1 if it does not, and 2 if the result is
// unknown.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sidecar-termination/operator/hack/probe-virtual-node/probe"
)

// Exit codes.
const (
	works   = 0
	failed  = 1
	unknown = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	o := probe.Options{Say: func(format string, arguments ...any) { fmt.Printf(format+"\n", arguments...) }}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flag.StringVar(&rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; $KUBECONFIG or ~/.kube/config by default")
	flag.StringVar(&o.Node, "node", "", "node to probe (required)")
	flag.StringVar(&o.Namespace, "namespace", "default", "namespace of the pod")
	flag.StringVar(&o.Image, "image", "busybox:1.37", "image with /bin/sleep that the pod starts with")
	flag.StringVar(&o.QuickExitImage, "quick-exit-image", "", "quick-exit image to swap to, the operator's own for example (required)")
	flag.DurationVar(&o.Timeout, "timeout", 3*time.Minute, "how long the pod may take to start, and to react to the image swap")
	flag.Parse()
	if o.Node == "" || o.QuickExitImage == "" || flag.NArg() > 0 {
		flag.Usage()
		return unknown
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fail(fmt.Errorf("find a cluster: %w", err))
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fail(fmt.Errorf("make a client: %w", err))
	}
	verdict, err := probe.Run(ctx, client, o)
	if err != nil {
		return fail(err)
	}
	fmt.Println(verdict.Message)
	if !verdict.Works {
		return failed
	}
	return works
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "probe-virtual-node:", err)
	return unknown
}
