// SPDX-License-Identifier: Apache-2.0

package main

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
)

// sharding is a way to divide pods among leaders.
type sharding struct {
	shards int
	// byNamespace has one leader for all pods of a namespace; else the pod's UID decides.
	byNamespace bool
}

const (
	// simulatedPods are the terminations of one simulation.
	simulatedPods = 50_000
	// simulatedNamespaces have pods in inverse proportion to their rank (Zipf's law): the greatest has about a seventh of all.
	simulatedNamespaces = 500
)

// shares returns which part of all pods each namespace has, and the sum of that and all before it.
func namespaceShares() (shares, sums []float64) {
	total := 0.0
	for rank := range simulatedNamespaces {
		shares = append(shares, 1/float64(rank+1))
		total += shares[rank]
	}
	sum := 0.0
	for rank := range shares {
		shares[rank] /= total
		sum += shares[rank]
		sums = append(sums, sum)
	}
	return shares, sums
}

// shardOf is the leader of a namespace.
func (s sharding) shardOf(namespace int) int {
	hash := fnv.New32a()
	// A hash takes all that it is given.
	_, _ = hash.Write([]byte("namespace-" + strconv.Itoa(namespace)))
	return int(hash.Sum32() % uint32(s.shards))
}

// busiest is the part of all pods that the busiest leader has.
func (s sharding) busiest() float64 {
	if !s.byNamespace {
		return 1 / float64(s.shards)
	}
	shares, _ := namespaceShares()
	parts := make([]float64, s.shards)
	for namespace, share := range shares {
		parts[s.shardOf(namespace)] += share
	}
	return slices.Max(parts)
}

// saturation is the rate of terminations above which the busiest leader falls behind, when one leader does that many a
// second.
func (s sharding) saturation(leader float64) float64 { return leader / s.busiest() }

// simulate returns the 99th percentile of the seconds from a pod's end to its write. Pods end independently of each other
// (Poisson arrivals); each leader is a queue with one server whose times vary as those of an exponential distribution do. The
// same input has the same result.
func (s sharding) simulate(rate, leader float64) float64 {
	random := rand.New(rand.NewPCG(1, 2))
	_, sums := namespaceShares()
	free := make([]float64, s.shards)
	waits := make([]float64, simulatedPods)
	now := 0.0
	for i := range waits {
		now += random.ExpFloat64() / rate
		shard := random.IntN(s.shards)
		if s.byNamespace {
			namespace, _ := slices.BinarySearch(sums, random.Float64())
			shard = s.shardOf(min(namespace, simulatedNamespaces-1))
		}
		free[shard] = max(now, free[shard]) + random.ExpFloat64()/leader
		waits[i] = free[shard] - now
	}
	slices.Sort(waits)
	return waits[(len(waits)*99+99)/100-1]
}
