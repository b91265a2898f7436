// SPDX-License-Identifier: Apache-2.0

package policyindex

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// requiredLabels records the label names that the index finds policies by, so that a lookup skips a pod's other labels. It is a
// hash set of fixed size without the names, which are user input: a collision costs one needless lookup. Names are never
// removed. It is safe for concurrent use.
type requiredLabels struct {
	seed  maphash.Seed
	slots [1 << 12]atomic.Bool
}

func newRequiredLabels() *requiredLabels { return &requiredLabels{seed: maphash.MakeSeed()} }

func (l *requiredLabels) slot(name string) *atomic.Bool {
	return &l.slots[maphash.String(l.seed, name)%uint64(len(l.slots))]
}

// mayRequire reports whether the index may have a policy by the label name.
func (l *requiredLabels) mayRequire(name string) bool { return l.slot(name).Load() }

// index returns a policy's keys: its namespace with a label that it requires, one key for each value that the label may have,
// or its namespace alone if it requires none. A store calls it before it serves the policy.
func (l *requiredLabels) index(object any) ([]string, error) {
	policy, ok := object.(v1alpha1.Policy)
	if !ok {
		return nil, fmt.Errorf("index policies: got a %T", object)
	}
	spec, _ := policy.Parts()
	name, values := requirement(&spec.PodSelector)
	if len(values) == 0 {
		return []string{policy.GetNamespace()}, nil
	}
	l.slot(name).Store(true)
	keys := make([]string, 0, len(values))
	for _, value := range values {
		keys = append(keys, selectorKey(policy.GetNamespace(), name, value))
	}
	return keys, nil
}

// requirement returns a label that the selector requires and the values that it may have, or nothing if it requires none.
func requirement(selector *metav1.LabelSelector) (name string, values []string) {
	if len(selector.MatchLabels) > 0 {
		// Any of them would do. The longest value is the least likely one to be common, like "true".
		value := ""
		for n, v := range selector.MatchLabels {
			if name == "" || len(v) > len(value) || len(v) == len(value) && n < name {
				name, value = n, v
			}
		}
		return name, []string{value}
	}
	for _, expression := range selector.MatchExpressions {
		if expression.Operator == metav1.LabelSelectorOpIn {
			return expression.Key, expression.Values
		}
	}
	return "", nil
}

// selectorKey joins its parts by a separator that no name and no value can contain.
func selectorKey(namespace, label, value string) string {
	return namespace + "\x00" + label + "\x00" + value
}
