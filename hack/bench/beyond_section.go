// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

const (
	// largePods is the size up to which Kubernetes supports clusters.
	largePods = 150_000
	// eventsPerPod is how many events of a pod a watch of unfinished pods has: created, bound, starting, running, main ended,
	// gone.
	eventsPerPod = 6
	// replicas is how many copies run and watch by default.
	replicas = 2
)

// beyondSection is what docs/performance.md computes for clusters that no one machine can hold.
func beyondSection(r *Report) string {
	if r == nil {
		return noFigures
	}
	c, missing := capacityOf(r)
	if len(missing) > 0 {
		return fmt.Sprintf("These results lack what this is computed from: %s.", list(missing))
	}
	return strings.Join([]string{memoryOfLargeClusters(c), ratesOfLargeClusters(c), shardTable(c)}, "\n")
}

func memoryOfLargeClusters(c capacity) string {
	t := &table{header: []string{"of 150,000 pods are live candidates", "resident memory of each replica, MiB", ""}, text: 0}
	for _, percent := range []int{10, 50, 100} {
		count := largePods * percent / 100
		note := "computed between measured points"
		if count > c.memory.to {
			note = fmt.Sprintf("extrapolated beyond %s", grouped(c.memory.to))
		}
		t.add(fmt.Sprintf("%s (%d %%)", grouped(count), percent), fmt.Sprintf("%.0f", c.memory.at(count)), note)
	}
	return fmt.Sprintf("**Memory**: %.0f MiB, and %s for each live candidate. Pods that are no candidates are not in it, and nodes take no part in it.\n\n%s",
		c.memory.base, c.memory.perPod(), t)
}

func ratesOfLargeClusters(c capacity) string {
	size := benchmarkPodSize()
	t := &table{header: []string{
		"terminations/s", "live candidates, if each runs 5 minutes", "operator, CPUs", "API server, CPUs", "writes/s", "pod events/s", "watch, MB/s",
	}, text: 0}
	for _, rate := range []int{10, 50, 100, 250, 500, 1000} {
		perSecond := float64(rate)
		t.add(grouped(rate), grouped(rate*300), fmt.Sprintf("%.2f", perSecond*c.cpu/1000), fmt.Sprintf("%.2f", perSecond*c.apiServerCPU/1000),
			fmt.Sprintf("%.0f", perSecond*c.writes), grouped(rate*eventsPerPod*replicas), fmt.Sprintf("%.1f", perSecond*eventsPerPod*replicas*float64(size)/1e6))
	}
	return fmt.Sprintf("**Rates**: a termination took %.2f ms of the operator's CPU, %.2f ms of the API server's, the reports of the kubelets included, and %.2f writes. "+
		"A pod is taken to have %d events on a watch, each with the whole pod, which is %.1f KB for those of the benchmark (protobuf, without managedFields; "+
		"with them it may be twice that). %d replicas watch.\n\n%s",
		c.cpu, c.apiServerCPU, c.writes, eventsPerPod, float64(size)/kB, replicas, t)
}

// benchmarkPodSize is the size in bytes of a pod of the benchmark, as watches send it.
func benchmarkPodSize() int {
	pod := newPod("bench", burstPods+"-00000")
	runs(pod)
	mainEnds(pod)
	return pod.Size()
}

// loads are arrivals as parts of what one leader can do.
var loads = []float64{0.5, 0.9, 2, 4}

// shardTable says how far one leader is from what is possible, and what several would do.
func shardTable(c capacity) string {
	t := &table{header: []string{"leaders", "divided by", "busiest leader has", "saturated at, pods/s"}, text: 2}
	for _, load := range loads {
		t.header = append(t.header, fmt.Sprintf("p99 at %.0f/s", load*c.leader))
	}
	t.header = append(t.header, "5,000 at once take")
	for _, s := range []sharding{{1, false}, {2, false}, {2, true}, {4, false}, {4, true}, {8, false}, {8, true}} {
		by := "pod"
		if s.byNamespace {
			by = "namespace"
		}
		if s.shards == 1 {
			by = absent
		}
		saturation := s.saturation(c.leader)
		row := []string{fmt.Sprint(s.shards), by, fmt.Sprintf("%.0f %%", 100*s.busiest()), fmt.Sprintf("%.0f", saturation)}
		for _, load := range loads {
			cell := "falls behind"
			if load*c.leader < saturation {
				cell = fmt.Sprintf("%.0f ms", 1000*s.simulate(load*c.leader, c.leader))
			}
			row = append(row, cell)
		}
		t.add(append(row, fmt.Sprintf("%.0f s", 5000/saturation))...)
	}
	return fmt.Sprintf("**One leader** did %.0f terminations a second in a burst, with the API server on the same CPUs. Bare clients, with the same reports and "+
		"the same requests but no events, did %.0f there, so that more leaders gain at most %.0f %%. By its own CPU time alone, a leader with one CPU to itself would do %.0f a second. "+
		"Where the API server takes more than one leader writes, a simulation says what several leaders would do. Each is a queue with one server that does "+
		"%.0f a second on average; pods end independently of each other. %d namespaces have pods by Zipf's law.\n\n%s",
		c.leader, c.floor, 100*max(0, c.floor/c.leader-1), 1000/c.cpu, c.leader, simulatedNamespaces, t)
}
