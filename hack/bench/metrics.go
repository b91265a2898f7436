// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

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

// unrelated are resources that the API server itself and leader election ask for, whether there are pods or not.
var unrelated = map[string]bool{"": true, "leases": true, "endpoints": true, "endpointslices": true}

// requestsOf reads the API server's own count of the requests that it has served. Those that failed have their code in
// brackets.
func requestsOf(ctx context.Context, e *environment) (requests, error) {
	c, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	content, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	families, err := parseMetrics(strings.NewReader(string(content)))
	if err != nil {
		return nil, err
	}
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
	return counted, nil
}

// reconcilesOf reads how many reconciles a controller of the operator has ended, whatever the result.
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

// memory is what the runtime of a process says of its memory, in bytes.
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

// collect has a process collect its heap, as its profile of the heap does on demand.
func collect(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("have the subject collect its heap: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("have the subject collect its heap: %s", response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// metricsOf reads the metrics of a subject.
func metricsOf(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the subject's metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	return parseMetrics(response.Body)
}

func parseMetrics(from io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(from)
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return families, nil
}
