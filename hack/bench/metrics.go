// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// requests counts API requests, by verb and resource such as "POST containerrecreaterequests" or "PATCH pods/status (409)".
type requests map[string]float64

// since returns what has been added to an earlier count.
func (r requests) since(before requests) requests {
	added := requests{}
	for key, count := range r {
		if more := count - before[key]; more > 0 {
			added[key] = more
		}
	}
	return added
}

// unrelated are resources that the API server and leader election read and write independently of pods.
var unrelated = map[string]bool{"": true, "leases": true, "endpoints": true, "endpointslices": true}

// serverMetrics reads the API server's metrics.
func serverMetrics(ctx context.Context, e *environment) (map[string]*dto.MetricFamily, error) {
	c, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	content, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseMetrics(content)
}

// collectionTime returns the CPU time of a Go process's garbage collections. It grows when a collection ends, and includes
// collections on otherwise idle CPUs.
func collectionTime(families map[string]*dto.MetricFamily) time.Duration {
	for _, metric := range families["go_cpu_classes_gc_total_cpu_seconds_total"].GetMetric() {
		return time.Duration(metric.GetCounter().GetValue() * float64(time.Second))
	}
	return 0
}

// requestsOf returns the API server's count of served requests. Failed ones have their code in brackets.
func requestsOf(families map[string]*dto.MetricFamily) requests {
	counted := requests{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		resource := labels["resource"]
		if unrelated[resource] || strings.HasPrefix(resource, "/") || labels["verb"] == "WATCH" {
			continue
		}
		if labels["subresource"] != "" {
			resource += "/" + labels["subresource"]
		}
		if code := labels["code"]; !strings.HasPrefix(code, "2") {
			resource += " (" + code + ")"
		}
		counted[labels["verb"]+" "+resource] += metric.GetCounter().GetValue()
	}
	return counted
}

// reconcilesOf reads how many reconciles a controller has completed, with any result.
func reconcilesOf(ctx context.Context, address, controller string) (float64, error) {
	families, err := metricsOf(ctx, address)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "controller" && label.GetValue() == controller {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total, nil
}

// memory is the heap of a process according to its metrics, in bytes.
type memory struct{ inUse, allocated float64 }

func memoryOf(ctx context.Context, address string) (memory, error) {
	families, err := metricsOf(ctx, address)
	if err != nil {
		return memory{}, err
	}
	gauge := func(name string) float64 {
		for _, metric := range families[name].GetMetric() {
			return metric.GetGauge().GetValue()
		}
		return 0
	}
	return memory{gauge("go_memstats_heap_inuse_bytes"), gauge("go_memstats_heap_alloc_bytes")}, nil
}

// collect makes a process collect garbage: its heap profile does so on demand.
func collect(ctx context.Context, address string) error {
	_, err := get(ctx, "http://"+address+"/debug/pprof/heap?gc=1")
	return err
}

// metricsOf reads the metrics of a contender.
func metricsOf(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	content, err := get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(content)
}

// get returns what a contender answers.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the contender: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the contender for %s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}

func parseMetrics(content []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return families, nil
}
