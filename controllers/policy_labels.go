// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// requiredLabels knows which label names a store's policies have been indexed by, so that a pod's other labels are not
// looked up. It keeps no name but a place that names share by their hash: its size is fixed, and a name that shares a place
// is looked up in vain. It forgets nothing. It may be used from many goroutines.
type requiredLabels struct {
	seed   maphash.Seed
	places [1 << 12]atomic.Bool
}

func newRequiredLabels() *requiredLabels { return &requiredLabels{seed: maphash.MakeSeed()} }

func (l *requiredLabels) place(name string) *atomic.Bool {
	return &l.places[maphash.String(l.seed, name)%uint64(len(l.places))]
}

// mayRequire reports whether a policy may have been indexed by the label name.
func (l *requiredLabels) mayRequire(name string) bool { return l.place(name).Load() }

// index returns the keys under which a policy is found: its namespace with a label that it requires, one for each value
// that the label may have, or its namespace alone when it requires none. A store calls it before the policy can be found.
func (l *requiredLabels) index(object any) ([]string, error) {
	var home string
	var selector *metav1.LabelSelector
	switch policy := object.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		home, selector = policy.Namespace, &policy.Spec.PodSelector
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		selector = &policy.Spec.PodSelector
	default:
		return nil, fmt.Errorf("index policies: got a %T", object)
	}
	name, values := requirement(selector)
	if len(values) == 0 {
		return []string{home}, nil
	}
	l.place(name).Store(true)
	keys := make([]string, 0, len(values))
	for _, value := range values {
		keys = append(keys, selectorKey(home, name, value))
	}
	return keys, nil
}

// requirement returns a label that the selector requires and the values that it may have, or none when it requires none.
func requirement(selector *metav1.LabelSelector) (name string, values []string) {
	if len(selector.MatchLabels) > 0 {
		// Any of them will do; the longest value is the least likely to be one that many share, such as "true".
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

// selectorKey has separators that are part of no name and no value.
func selectorKey(namespace, label, value string) string {
	return namespace + "\x00" + label + "\x00" + value
}
