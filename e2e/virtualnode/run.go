// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/sidecar-termination/operator/e2e/virtualnode/provider"
)

const (
	leaseSeconds   = 40
	statusInterval = 5 * time.Second
	podWorkers     = 16
)

// run serves the node until the context ends, and then kills its containers.
func run(ctx context.Context, o options) error {
	if err := takeCgroup(o.cgroup); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	processes, err := provider.New(provider.Images{Directory: o.images}, o.directory)
	if err != nil {
		return err
	}
	defer processes.Close()
	pods, err := newPodController(ctx, client, o.node, processes)
	if err != nil {
		return err
	}
	nodes, err := newNodeController(client, newNode(o.node))
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 3)
	go func() { ended <- pods.Run(ctx, podWorkers) }()
	go func() { ended <- nodes.Run(ctx) }()
	server := &http.Server{Addr: o.health, Handler: health(pods, nodes), ReadHeaderTimeout: time.Second}
	go func() { ended <- server.ListenAndServe() }()
	err = <-ended
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, server.Close())
}

func newPodController(ctx context.Context, client kubernetes.Interface, name string, processes *provider.Provider) (*node.PodController, error) {
	onNode := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", name).String()
	}))
	// The pod controller requires more informers than the provider uses.
	unused := informers.NewSharedInformerFactory(client, 0).Core().V1()
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient:                 client.CoreV1(),
		PodInformer:               onNode.Core().V1().Pods(),
		EventRecorder:             events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "virtual-kubelet", Host: name}),
		Provider:                  processes,
		ConfigMapInformer:         unused.ConfigMaps(),
		SecretInformer:            unused.Secrets(),
		ServiceInformer:           unused.Services(),
		SkipDownwardAPIResolution: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the pod controller: %w", err)
	}
	onNode.Start(ctx.Done())
	return controller, nil
}

func newNodeController(client kubernetes.Interface, object *corev1.Node) (*node.NodeController, error) {
	nodes := client.CoreV1().Nodes()
	controller, err := node.NewNodeController(node.NewNaiveNodeProvider(), object, nodes,
		node.WithNodeEnableLeaseV1(client.CoordinationV1().Leases(corev1.NamespaceNodeLease), leaseSeconds),
		node.WithNodeStatusUpdateInterval(statusInterval),
		// Registers a deleted node again.
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, err error) error {
			if !apierrors.IsNotFound(err) {
				return err
			}
			_, err = nodes.Create(ctx, object.DeepCopy(), metav1.CreateOptions{})
			return err
		}))
	if err != nil {
		return nil, fmt.Errorf("make the node controller: %w", err)
	}
	return controller, nil
}

// health reports healthy once both controllers are ready.
func health(pods *node.PodController, nodes *node.NodeController) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(response http.ResponseWriter, _ *http.Request) {
		for _, ready := range []<-chan struct{}{pods.Ready(), nodes.Ready()} {
			select {
			case <-ready:
			default:
				http.Error(response, "not ready yet", http.StatusServiceUnavailable)
				return
			}
		}
	})
	return mux
}
