// SPDX-License-Identifier: Apache-2.0

package prepull

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Job is one image to be pulled to nodes.
type Job struct {
	Namespace, Name string
	Pull
}

// Pull is the content of a job.
type Pull struct {
	Image string `json:"image"`
	// NodeSelector is nil for all nodes.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// PullSecrets are sorted.
	PullSecrets []string `json:"pullSecrets,omitempty"`
}

// Existing is a job of the policy in the cluster, with its progress.
type Existing struct {
	Namespace, Name string
	UID             types.UID
	// Deleted is true while the job is being deleted.
	Deleted bool
	// Begun is true once OpenKruise has started the job.
	Begun bool
	// Desired, Succeeded and Failed are numbers of nodes.
	Desired, Succeeded, Failed int32
	FailedNodes                []string
}

// hashLength is the number of the hash's characters in a name.
const hashLength = 12

// jobs returns one job for each image, in the images' order.
func jobs(policy v1alpha1.Policy, namespace string, images []string) []Job {
	spec, _ := policy.Parts()
	pull := Pull{NodeSelector: nodeSelector(spec.PrePull)}
	for _, secret := range spec.PrePull.ImagePullSecrets {
		pull.PullSecrets = append(pull.PullSecrets, secret.Name)
	}
	slices.Sort(pull.PullSecrets)
	var all []Job
	for _, image := range images {
		pull.Image = image
		all = append(all, Job{Namespace: namespace, Name: jobName(policy, pull), Pull: pull})
	}
	return all
}

// nodeSelector returns nil for a selector that selects every node: OpenKruise does not apply a job with an empty selector
// to new nodes.
func nodeSelector(prePull *v1alpha1.PrePull) *metav1.LabelSelector {
	selector := prePull.NodeLabelSelector
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	return selector
}

// jobName is the policy's name, cut to fit, and a hash of the policy's uid and the job's content.
func jobName(policy v1alpha1.Policy, pull Pull) string {
	// Encoding strings, slices and maps of strings cannot fail, and maps are sorted.
	content, _ := json.Marshal(struct {
		UID types.UID
		Pull
	}{policy.GetUID(), pull})
	hash := sha256.Sum256(content)
	suffix := "-" + hex.EncodeToString(hash[:])[:hashLength]
	return cut(policy.GetName(), validation.DNS1123LabelMaxLength-len(suffix)) + suffix
}

// LabelValue returns the policy's name, cut to the length of a label value.
func LabelValue(policy string) string {
	return cut(policy, validation.LabelValueMaxLength)
}

// cut shortens the name of an object so that it still ends in a letter or digit.
func cut(name string, length int) string {
	if len(name) <= length {
		return name
	}
	return strings.TrimRight(name[:length], "-.")
}
