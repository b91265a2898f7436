// SPDX-License-Identifier: Apache-2.0

// Package recording records what an API server shows of pods, Jobs, ContainerRecreateRequests and nodes, and reads recordings.
// Package podmodel replays them.
package recording

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sidecar-termination/operator/internal/podmodel"
)

const (
	// Directory is the directory of recordings, relative to the local cluster's directory.
	Directory = "recordings"
	// Suffix is the end of the name of a recording.
	Suffix = ".jsonl.gz"
	// maxSize is the size of a recording, compressed, at which it ends.
	maxSize = 256 << 20
	// flushEvery bounds what a killed process loses.
	flushEvery = time.Second
	// retry is the backoff after a failed list or watch.
	retry = time.Second
)

var kinds = map[string]schema.GroupVersionResource{
	"Pod":                      {Version: "v1", Resource: "pods"},
	"Job":                      {Group: "batch", Version: "v1", Resource: "jobs"},
	"Node":                     {Version: "v1", Resource: "nodes"},
	"ContainerRecreateRequest": {Group: "apps.kruise.io", Version: "v1alpha1", Resource: "containerrecreaterequests"},
}

// Run records into a new file of the directory until the context ends.
func Run(ctx context.Context, config *rest.Config, directory string) error {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "sidecar-termination-recorder"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return fmt.Errorf("create the directory of recordings: %w", err)
	}
	file, err := os.Create(filepath.Join(directory, time.Now().UTC().Format("20060102T150405.000000Z")+Suffix))
	if err != nil {
		return fmt.Errorf("create a recording: %w", err)
	}
	w := newWriter(file)
	var watches sync.WaitGroup
	for kind, resource := range kinds {
		watches.Go(func() { follow(ctx, w, kind, client.Resource(resource)) })
	}
	watches.Wait()
	return errors.Join(w.close(), file.Close())
}

// follow records a kind until the context ends, or nothing as long as the cluster does not serve it.
func follow(ctx context.Context, w *writer, kind string, from dynamic.ResourceInterface) {
	for ctx.Err() == nil {
		listAndWatch(ctx, w, kind, from)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// listAndWatch records a gap, the listed objects, and then every event until the API server no longer has the next one.
func listAndWatch(ctx context.Context, w *writer, kind string, from dynamic.ResourceInterface) {
	list, err := from.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	w.write(podmodel.Event{Type: podmodel.Gap, Kind: kind})
	for i := range list.Items {
		w.write(eventOf(podmodel.Listed, kind, &list.Items[i]))
	}
	// It continues after the last event if the connection is lost.
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), watcherOf{from})
	if err != nil {
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Error || !ok {
			return
		}
		w.write(eventOf(string(event.Type), kind, object))
	}
}

type watcherOf struct{ dynamic.ResourceInterface }

func (w watcherOf) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.Watch(ctx, options)
}

// eventOf returns a line of the recording. An object that cannot be read becomes a gap.
func eventOf(change, kind string, object *unstructured.Unstructured) podmodel.Event {
	event := podmodel.Event{Type: change, Kind: kind}
	if kind != "Pod" {
		other := objectOf(object)
		event.Object = &other
		return event
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return podmodel.Event{Type: podmodel.Gap, Kind: kind}
	}
	event.Pod, event.Managers = podmodel.Trim(pod), podmodel.Managers(pod)
	return event
}

func objectOf(object *unstructured.Unstructured) podmodel.Object {
	other := podmodel.Object{UID: string(object.GetUID()), Namespace: object.GetNamespace(), Name: object.GetName()}
	other.KubeletVersion, _, _ = unstructured.NestedString(object.Object, "status", "nodeInfo", "kubeletVersion")
	other.Phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	other.Succeeded, _, _ = unstructured.NestedInt64(object.Object, "status", "succeeded")
	other.Failed, _, _ = unstructured.NestedInt64(object.Object, "status", "failed")
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	has := map[string]bool{}
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["status"] == "True" {
			has[fmt.Sprint(fields["type"])] = true
		}
	}
	for _, of := range []string{"FailureTarget", "SuccessCriteriaMet", "Failed", "Complete"} {
		if has[of] {
			other.Phase = of
		}
	}
	return other
}

// writer writes the lines of a recording. After an error, or at the size at which a recording ends, it writes no more.
type writer struct {
	mutex   sync.Mutex
	size    *counter
	zip     *gzip.Writer
	encoder *json.Encoder
	flushed time.Time
	err     error
}

// counter counts written bytes.
type counter struct {
	io.Writer
	bytes int
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.Writer.Write(data)
	c.bytes += n
	return n, err
}

func newWriter(to io.Writer) *writer {
	size := &counter{Writer: to}
	zip := gzip.NewWriter(size)
	return &writer{size: size, zip: zip, encoder: json.NewEncoder(zip), flushed: time.Now()}
}

func (w *writer) write(event podmodel.Event) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.err != nil || w.size.bytes >= maxSize {
		return
	}
	event.At = time.Now()
	w.err = w.encoder.Encode(event)
	if w.err == nil && event.At.Sub(w.flushed) >= flushEvery {
		w.flushed, w.err = event.At, w.zip.Flush()
	}
}

func (w *writer) close() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return errors.Join(w.err, w.zip.Close())
}
