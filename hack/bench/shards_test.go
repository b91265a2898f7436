// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

// A single queue has a formula: the time in it is distributed exponentially, with the difference of both rates as its rate.
func TestTheSimulationOfOneLeaderAgreesWithTheFormula(t *testing.T) {
	for _, load := range []float64{0.1, 0.5, 0.8} {
		got, want := sharding{shards: 1}.simulate(load*400, 400), math.Log(100)/(400-load*400)
		if math.Abs(got-want) > want/10 {
			t.Errorf("at %.0f %%: p99 is %.4f s, by the formula %.4f s", 100*load, got, want)
		}
	}
}

func TestTheBusiestLeaderDecidesWhenManyFallBehind(t *testing.T) {
	for _, test := range []struct {
		name        string
		sharding    sharding
		least, most float64
	}{
		{"one leader", sharding{shards: 1}, 400, 400},
		{"pods divide evenly", sharding{shards: 8}, 3200, 3200},
		{"a namespace cannot be divided", sharding{shards: 500, byNamespace: true}, 400, 400 * 7},
	} {
		if got := test.sharding.saturation(400); got < test.least || got > test.most {
			t.Errorf("%s: saturated at %.0f/s, want %.0f to %.0f", test.name, got, test.least, test.most)
		}
	}
}

func TestMoreLeadersOrFewerPodsNeverWaitLonger(t *testing.T) {
	for _, byNamespace := range []bool{false, true} {
		before := math.Inf(1)
		for _, shards := range []int{1, 2, 4, 8} {
			got := sharding{shards, byNamespace}.simulate(300, 400)
			if got > before {
				t.Errorf("by namespace %t: p99 is %.4f s with %d leaders, and was %.4f s with half of them", byNamespace, got, shards, before)
			}
			before = got
		}
	}
}
