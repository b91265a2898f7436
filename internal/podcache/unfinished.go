// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// UnfinishedPods selects the Job-type pods without a terminal phase. The fields are selectable since Kubernetes 1.0
// (pkg/registry/core/pod/strategy.go, ToSelectableFields).
func UnfinishedPods() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.restartPolicy", string(corev1.RestartPolicyAlways)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}
