// SPDX-License-Identifier: Apache-2.0

package podmodel

import (
	"fmt"
	"slices"
)

// Object is a Job, a ContainerRecreateRequest or a Node.
type Object struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is the phase of a request. For a Job, it is the type of its latest condition that is about its end.
	Phase string `json:"phase"`
	// Succeeded and Failed count the pods of a Job.
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	// KubeletVersion is the version of a Node's kubelet.
	KubeletVersion string `json:"kubeletVersion,omitempty"`
}

// phases are the phases that may follow each other.
var phases = map[string]map[string][]string{
	"Job": {
		"":                   {"SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"},
		"SuccessCriteriaMet": {"Complete"},
		"FailureTarget":      {"Failed"},
	},
	"ContainerRecreateRequest": {
		"":           {"Pending", "Recreating", "Completed"},
		"Pending":    {"Recreating", "Succeeded", "Failed", "Completed"},
		"Recreating": {"Succeeded", "Failed", "Completed"},
		"Succeeded":  {"Completed"},
		"Failed":     {"Completed"},
	},
}

// StepObject returns the name of the rule that explains a change of a Job or request, or a divergence.
func StepObject(kind string, before, after Object) (string, *Divergence) {
	writer := Controllers
	if kind == "ContainerRecreateRequest" {
		writer = Kruise
	}
	switch {
	case before.Phase != after.Phase && !slices.Contains(phases[kind][before.Phase], after.Phase):
		return "", &Divergence{Field: "phase", Writer: writer, Before: text(before.Phase), After: text(after.Phase)}
	case after.Succeeded < before.Succeeded || after.Failed < before.Failed:
		return "", &Divergence{Field: "status", Writer: writer, Before: text(before), After: text(after)}
	case before.Phase != after.Phase:
		return fmt.Sprintf("a %s goes on to %s", kind, after.Phase), nil
	case before != after:
		return "a Job counts a pod", nil
	default:
		return NothingRecorded, nil
	}
}
