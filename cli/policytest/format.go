// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// kind is the kind of a test file. It has the apiVersion of the JSON output.
const kind = "PolicyTest"

// none is the value of an expectation that there is nothing, such as no mode.
const none = "None"

// definition is the content of a test file.
type definition struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Manifests are files with policies, namespaces and workloads, relative to the test file. Objects are the same inline.
	Manifests []string          `json:"manifests"`
	Objects   []json.RawMessage `json:"objects"`
	// Namespace is the namespace of objects without one.
	Namespace string `json:"namespace"`
	// Cluster applies to every case.
	Cluster clusterFacts `json:"cluster"`
	// Cases are of type testCase.
	Cases []json.RawMessage `json:"cases"`
}

// clusterFacts describe the cluster and the operator in it. An unset field of a case has the value of the file.
type clusterFacts struct {
	// OpenKruise says whether OpenKruise is usable. Default: false.
	OpenKruise *bool `json:"openKruise"`
	// PhaseGuard says whether the phase guard is installed. Default: true, as in the manifests.
	PhaseGuard *bool `json:"phaseGuard"`
	// EnforceDryRun says whether policies with enforcement DryRun count as enforced. Default: false.
	EnforceDryRun *bool `json:"enforceDryRun"`
	// OperatorFlags are flags of the operator. Those of a case follow those of the file.
	OperatorFlags []string `json:"operatorFlags"`
}

// testCase is a pod at one moment, and what to expect of the operator.
type testCase struct {
	Name string `json:"name"`
	// Workload is KIND/NAME or KIND/NAMESPACE/NAME of a manifest. It may be empty if there is only one workload.
	Workload string       `json:"workload"`
	Cluster  clusterFacts `json:"cluster"`
	// Node is the kind of the pod's node, or Unknown, or None for a pod without a node.
	Node string `json:"node"`
	// Phase is the pod's phase. Default: Running, or Pending without a node.
	Phase corev1.PodPhase `json:"phase"`
	// Containers are the states of regular containers. Others run.
	Containers map[string]containerState `json:"containers"`
	// Attempts are the attempts that the operator has begun.
	Attempts []attempt `json:"attempts"`
	// ElapsedSeconds is the time since the containers with an exit code ended.
	ElapsedSeconds int64       `json:"elapsedSeconds"`
	Expect         expectation `json:"expect"`
}

// containerState is the state of a container. Exactly one of Running, ExitCode and Waiting is set.
type containerState struct {
	Running  bool   `json:"running"`
	ExitCode *int32 `json:"exitCode"`
	// Waiting is the reason, such as ImagePullBackOff.
	Waiting  string `json:"waiting"`
	Restarts int32  `json:"restarts"`
	// Started says whether a waiting container has run before. Default: whether it has restarts.
	Started *bool `json:"started"`
}

// attempt is an attempt that the operator has begun. Times are seconds after the main containers ended.
type attempt struct {
	Mode             v1alpha1.Mode `json:"mode"`
	PartOf           v1alpha1.Mode `json:"partOf"`
	Sidecars         []string      `json:"sidecars"`
	StartedSeconds   int64         `json:"startedSeconds"`
	CompletedSeconds *int64        `json:"completedSeconds"`
	// Restarts are the restart counts of sidecars when the attempt began. Default: the current ones.
	Restarts map[string]int32 `json:"restarts"`
}

// expectation is what a case compares. Unset fields are not compared.
type expectation struct {
	Stage  plan.Stage      `json:"stage"`
	Reason v1alpha1.Reason `json:"reason"`
	// Mode is the mode that the operator starts to use, or None if it writes nothing.
	Mode string `json:"mode"`
	// Phase is the phase that the operator writes, or None.
	Phase string `json:"phase"`
	// Findings are reasons of findings that explain must report. It may report others.
	Findings   []v1alpha1.Reason               `json:"findings"`
	Containers map[string]containerExpectation `json:"containers"`
}

// containerExpectation is what a case compares for one container. Roles and declarations are those of explain.
type containerExpectation struct {
	Role string `json:"role"`
	// DeclaredBy is a policy as KIND/NAME, or Environment, or None.
	DeclaredBy string `json:"declaredBy"`
	// Mode is the mode that the operator starts to use for the container, or None.
	Mode string `json:"mode"`
	// Image is the quick-exit image that replaces the container's image, or None.
	Image string `json:"image"`
}
