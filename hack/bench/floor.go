// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// terminate makes the operator's write for a pod, without a decision.
type terminate func(ctx context.Context, pod *corev1.Pod) error

// bareTerminator returns a function that makes the operator's write of the mode.
func bareTerminator(c client.Client, mode v1alpha1.Mode) terminate {
	action := plan.Action{
		Mode: mode, For: mode, Containers: []string{sidecar}, Images: map[string]string{sidecar: quickExitImage},
		Phase: corev1.PodSucceeded, Timeout: time.Minute,
	}
	terminators := map[v1alpha1.Mode]interface {
		Terminate(ctx context.Context, pod *corev1.Pod, action plan.Action) (bool, error)
	}{
		v1alpha1.ModeCRR:      &crr.Terminator{Client: c, Server: c, Clock: clock.RealClock{}},
		v1alpha1.ModePodPhase: &podphase.Terminator{Client: c, Clock: clock.RealClock{}},
		v1alpha1.ModeImage:    &image.Terminator{Client: c, Clock: clock.RealClock{}},
	}
	return func(ctx context.Context, pod *corev1.Pod) error {
		_, err := terminators[mode].Terminate(ctx, pod, action)
		return err
	}
}

// newFloorCommand makes the command of the contender floor: the least that a process which watches pods can do. It decodes
// each pod event and makes the operator's write at once. It has no cache, no queue, no policy and no decision.
func newFloorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "floor KUBECONFIG HEALTH-ADDRESS", Short: "Run the contender floor", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			return runFloor(command.Context(), arguments[0], arguments[1])
		},
	}
}

// startFloor starts the contender floor: this program with another command.
func startFloor(ctx context.Context, e *environment) (*started, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	kubeconfig, err := e.kubeconfig("floor")
	if err != nil {
		return nil, err
	}
	free, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	return launch(ctx, process.Command{
		Path: self, Arguments: []string{"floor", kubeconfig, free[0]}, Environment: []string{"PATH=" + os.Getenv("PATH")},
		Directory: e.directory, Log: filepath.Join(e.directory, "floor.log"),
	}, "http://"+free[0])
}

// namespacePrefix is the name prefix of the namespaces in which pods complete by the mode.
func namespacePrefix(mode v1alpha1.Mode) string {
	return "bench-" + strings.ToLower(string(mode)) + "-"
}

func runFloor(ctx context.Context, kubeconfig, health string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	e := &environment{}
	if err := e.connect(config); err != nil {
		return err
	}
	c, err := reporters(e.config)
	if err != nil {
		return err
	}
	byPrefix := map[string]terminate{}
	for _, name := range modeNames {
		byPrefix[namespacePrefix(v1alpha1.Mode(name))] = bareTerminator(e.client, v1alpha1.Mode(name))
	}
	pods := c.CoreV1().Pods(metav1.NamespaceAll)
	now, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &toolscache.ListWatch{WatchFuncWithContext: pods.Watch})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	go func() {
		log.Print(http.ListenAndServe(health, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}()
	followEnds(events.ResultChan(), func(pod *corev1.Pod) {
		do := byPrefix[pod.Namespace[:strings.LastIndex(pod.Namespace, "-")+1]]
		if do == nil {
			return
		}
		if err := do(ctx, pod); err != nil {
			log.Print(err)
		}
	})
	return errors.Join(ctx.Err(), errClosed)
}

// followEnds calls do once for each pod whose main container has ended, as many at a time as the operator has workers.
func followEnds(events <-chan watch.Event, do func(*corev1.Pod)) {
	known, workers := map[types.UID]bool{}, make(chan struct{}, operatorWorkers)
	for event := range events {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type != watch.Modified || known[pod.UID] || pod.Status.ContainerStatuses[0].State.Terminated == nil {
			continue
		}
		known[pod.UID] = true
		go func() {
			workers <- struct{}{}
			defer func() { <-workers }()
			do(pod)
		}()
	}
}
