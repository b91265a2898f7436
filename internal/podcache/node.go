// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxFeatures is how many of a node's declared features are kept. Kubernetes 1.37 has ten. maxNodeText is the length of the longest
// kubelet version or feature that is kept.
const (
	maxFeatures = 256
	maxNodeText = 256
)

// trimNode keeps what determines a node's kind, and what it reports about its kubelet. Any other object is returned unchanged.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	version := node.Status.NodeInfo.KubeletVersion
	if len(version) > maxNodeText {
		version = ""
	}
	declared := node.Status.DeclaredFeatures
	var features []string
	for _, feature := range declared[:min(len(declared), maxFeatures)] {
		if len(feature) <= maxNodeText {
			features = append(features, feature)
		}
	}
	return &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
		},
		Spec:   corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints)},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}, DeclaredFeatures: features},
	}, nil
}
