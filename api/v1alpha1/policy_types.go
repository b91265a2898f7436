// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Policy is a policy of either kind.
// +kubebuilder:object:generate=false
type Policy interface {
	metav1.Object
	runtime.Object
	// Parts returns the policy's own spec and status, without what only one kind has.
	Parts() (*PolicySpec, *PolicyStatus)
}

// Mode names the mechanism that ends a sidecar.
// +kubebuilder:validation:Enum=Auto;CRR;Image;PodPhase
type Mode string

const (
	// ModeAuto chooses the mode by the pod's node and by what the cluster offers.
	ModeAuto Mode = "Auto"
	// ModeCRR creates a ContainerRecreateRequest, and OpenKruise's daemon stops the container: preStop, SIGTERM, grace
	// period, SIGKILL. It needs OpenKruise and a real node.
	ModeCRR Mode = "CRR"
	// ModeImage swaps the container's image in place for a quick-exit image.
	ModeImage Mode = "Image"
	// ModePodPhase gives the pod phase Succeeded once its main containers have succeeded, and the kubelet tears the pod down. It needs a
	// real node and admission policy sidecar-termination-outcome.
	ModePodPhase Mode = "PodPhase"
)

// ExitCodePolicy says whether a sidecar's exit code counts for the pod's outcome.
// +kubebuilder:validation:Enum=Ignore;Respect
type ExitCodePolicy string

const (
	// ExitCodePolicyIgnore makes the pod's outcome depend on its main containers alone.
	ExitCodePolicyIgnore ExitCodePolicy = "Ignore"
	// ExitCodePolicyRespect leaves the pod's outcome to Kubernetes: a sidecar that exits non-zero fails the pod.
	ExitCodePolicyRespect ExitCodePolicy = "Respect"
)

// Fallback says whether another mode may replace one that failed or cannot be used.
// +kubebuilder:validation:Enum=Enabled;Disabled
type Fallback string

const (
	// FallbackEnabled tries the next usable mode after one that failed or cannot be used.
	FallbackEnabled Fallback = "Enabled"
	// FallbackDisabled uses the declared mode only.
	FallbackDisabled Fallback = "Disabled"
)

// Enforcement says whether the operator acts on a policy.
// +kubebuilder:validation:Enum=Enforce;DryRun
type Enforcement string

const (
	// EnforcementEnforce terminates sidecars.
	EnforcementEnforce Enforcement = "Enforce"
	// EnforcementDryRun writes nothing to pods, and reports what the operator would do.
	EnforcementDryRun Enforcement = "DryRun"
)

// Acts reports whether the operator acts on a policy with this enforcement. It does not act on a value that it does not
// know, which a newer definition may permit.
func (e Enforcement) Acts() bool { return e == "" || e == EnforcementEnforce }

// QuickExitPath is an absolute path of the program in a quick-exit image, or "default" for the paths of the shipped image,
// or "*" for an image that covers every command.
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self == 'default' || self == '*' || (self.matches('^(/[^/[:cntrl:]]+)+$') && !self.matches('/[.][.]?(/|$)'))",message="an entry of quickExitPaths must be an absolute path in its shortest form (such as /app/server), default for the paths of the shipped image, or * for every command"
// +kubebuilder:validation:XValidation:rule="!self.matches('^/(dev|proc|sys|etc/(hostname|hosts|resolv[.]conf))(/|$)')",message="an entry of quickExitPaths cannot be a path that container runtimes mount over the image: /dev, /proc, /sys, /etc/hostname, /etc/hosts or /etc/resolv.conf"
type QuickExitPath string

// TerminationSettings say how a sidecar is ended. An unset field takes its value from the next place that sets it: the
// policy's spec, other policies that declare the sidecar, the container's environment variables, the operator's default.
// +kubebuilder:validation:XValidation:rule="!has(self.quickExitPaths) || size(self.quickExitPaths) == 0 || (has(self.image) && size(self.image) > 0)",message="quickExitPaths describes the image at the same level: set image as well",fieldPath=".quickExitPaths"
type TerminationSettings struct {
	// mode is the mechanism that ends the sidecar: Auto, CRR, Image or PodPhase. Defaults to Auto, which uses CRR
	// where OpenKruise's daemon runs, PodPhase on other nodes with a kubelet, and Image on virtual nodes.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// image is the quick-exit image of mode Image, a whole reference: repository with tag or digest. Started with the
	// sidecar's own command, it must exit 0. quickExitPaths lists the commands that it covers. Defaults to the operator's
	// --quick-exit-image.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9][A-Za-z0-9._:/@-]*$')",message="image must be an image reference such as registry.example/quick-exit:v1"
	Image string `json:"image,omitempty"`

	// quickExitPaths lists the paths of the program in image. Mode Image is used only for containers whose command is at
	// one of these paths, because a container cannot start with an image that lacks its command. An entry is an absolute
	// path such as /opt/proxy/bin/proxy, "default" for the paths of the shipped image, or "*" for an image that covers
	// every command. The list is complete: default and /app/server together describe an image that was built with
	// --path /app/server.
	//
	// It needs image at the same level and describes that image only. The operator's --quick-exit-image covers its
	// --quick-exit-paths, and the image of an environment variable covers every command. Unset or empty means default.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	QuickExitPaths []QuickExitPath `json:"quickExitPaths,omitempty"`

	// exitCodePolicy says whether the sidecar's exit code counts. Ignore (the default): the pod's outcome depends on its main
	// containers alone. Respect: a sidecar that exits non-zero fails the pod, as usual in Kubernetes.
	// +optional
	ExitCodePolicy ExitCodePolicy `json:"exitCodePolicy,omitempty"`

	// drainSeconds is how long the sidecar keeps running after the last main container has ended, so that it can flush its
	// data. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`

	// terminationOrder orders the ends of a pod's sidecars: one with a higher value ends after those with a lower one have ended, such as a
	// proxy with 100 after the log shipper that sends through it. Modes CRR and Image keep the order. PodPhase ends all at once, and is used
	// last for sidecars that others wait for. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	TerminationOrder *int32 `json:"terminationOrder,omitempty"`
}

// Sidecar declares one container as a sidecar.
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'PodPhase' && has(self.exitCodePolicy) && self.exitCodePolicy == 'Respect')",message="exitCodePolicy: Respect cannot be combined with mode: PodPhase, which ignores sidecar exit codes",fieldPath=".exitCodePolicy"
type Sidecar struct {
	// name is the name of a regular container of the pod. Each * stands for any characters, as in csql-*: at most three, and not
	// alone. Of several entries that match a container, the one without * counts, then the longest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$`
	// +kubebuilder:validation:XValidation:rule="size(self.split('*')) <= 4 && self.matches('[^*]')",message="name may have at most three *, and must have another character"
	Name string `json:"name,omitempty"`

	TerminationSettings `json:",inline"`
}

// ContainerName is the name of a regular container.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type ContainerName string

// PolicySpec is what both policy kinds declare.
// +kubebuilder:validation:XValidation:rule="(has(self.sidecars) || (has(self.includeInjected) && self.includeInjected)) != has(self.mainContainers)",message="set sidecars, includeInjected or both, or else mainContainers: sidecars names the containers to end, mainContainers those to wait for"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'PodPhase' && has(self.exitCodePolicy) && self.exitCodePolicy == 'Respect')",message="exitCodePolicy: Respect cannot be combined with mode: PodPhase, which ignores sidecar exit codes",fieldPath=".exitCodePolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.sidecars) || !has(self.exitCodePolicy) || self.exitCodePolicy != 'Respect' || self.sidecars.all(s, !has(s.mode) || s.mode != 'PodPhase' || has(s.exitCodePolicy))",message="a sidecar with mode: PodPhase must set exitCodePolicy: Ignore where the policy sets Respect, because the mode ignores sidecar exit codes",fieldPath=".sidecars"
// +kubebuilder:validation:XValidation:rule="!has(self.sidecars) || !has(self.mode) || self.mode != 'PodPhase' || self.sidecars.all(s, !has(s.exitCodePolicy) || s.exitCodePolicy != 'Respect' || has(s.mode))",message="a sidecar with exitCodePolicy: Respect must set another mode where the policy sets mode: PodPhase, which ignores sidecar exit codes",fieldPath=".sidecars"
type PolicySpec struct {
	// podSelector selects the pods by label. Unset or {} selects every pod. The operator acts only on pods with restartPolicy
	// Never or OnFailure.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 64) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 64)",message="podSelector may hold at most 64 matchLabels and 64 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="each of the matchExpressions of podSelector may hold at most 64 values"
	PodSelector metav1.LabelSelector `json:"podSelector,omitempty"`

	// sidecars are the containers to end once the main containers are done. The policy says nothing about other containers. A
	// name that a pod does not have is ignored, and the order has no meaning.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Sidecars []Sidecar `json:"sidecars,omitempty"`

	// includeInjected also ends the containers that the pod has and the pod template of its Job lacks: something has injected
	// them, whatever they are called. Pods of other owners have no such template, and neither has a pod that lacks one of the
	// template's containers. It cannot be combined with mainContainers.
	// +optional
	IncludeInjected bool `json:"includeInjected,omitempty"`

	// mainContainers are the containers to wait for; every other regular container is a sidecar. The policy does not apply to a
	// pod that has none of them. It cannot be combined with sidecars and includeInjected.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	MainContainers []ContainerName `json:"mainContainers,omitempty"`

	TerminationSettings `json:",inline"`

	// terminationDeadlineSeconds is how long an attempt may take, in addition to the pod's grace period, before it has
	// failed. It holds for all sidecars of the policy. Defaults to 30.
	// +optional
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=3600
	TerminationDeadlineSeconds *int32 `json:"terminationDeadlineSeconds,omitempty"`

	// fallback says what follows a mode that failed or cannot be used. Enabled (the default): the next usable mode.
	// Disabled: nothing, and the operator reports the pod as stuck. It holds for all sidecars of the policy.
	// +optional
	Fallback Fallback `json:"fallback,omitempty"`

	// enforcement says whether the operator acts on the policy. Enforce: it does. DryRun: it writes nothing to pods, and
	// reports in events, status and metrics what it would do.
	// +optional
	// +default="Enforce"
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// priority decides which of several policies of one kind takes precedence: the higher priority, then the older policy,
	// then the first name. A namespaced policy always takes precedence over a cluster policy. For each container, the first
	// policy that says something about it decides whether it is a sidecar. Each field comes from the first policy that
	// declares the sidecar and sets the field.
	// +optional
	// +default=0
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// prePull downloads the quick-exit images that this policy may use to nodes in advance, with one ImagePullJob of
	// OpenKruise per image. The condition PrePulled reports the progress, or why OpenKruise cannot pull. Sidecars are ended
	// in any case. {} means every node; unset means that nothing is pulled.
	// +optional
	PrePull *PrePull `json:"prePull,omitempty"`
}

// PrePull says to which nodes OpenKruise pulls quick-exit images, and how.
type PrePull struct {
	// nodeLabelSelector selects the nodes by label. Defaults to all nodes. OpenKruise skips nodes with the label
	// type=virtual-kubelet.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 64) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 64)",message="nodeLabelSelector may hold at most 64 matchLabels and 64 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="each of the matchExpressions of nodeLabelSelector may hold at most 64 values"
	NodeLabelSelector *metav1.LabelSelector `json:"nodeLabelSelector,omitempty"`

	// imagePullSecrets name Secrets with registry credentials in the policy's namespace; for a cluster policy, in the
	// operator's namespace. OpenKruise reads them and copies them to the namespace of its daemon; the operator does not
	// read them. OpenKruise skips a Secret that does not exist.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// PolicyStatus is the observed state of a policy.
type PolicyStatus struct {
	// conditions describe the policy. Ready is always present. It is true while the operator can act on the policy, whether or
	// not pods are stuck. Overridden, Degraded and Stalled are present only while they are true, and PrePulled only while
	// spec.prePull is set. Degraded reports stuck pods, or a mode that cannot be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the policy that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// mode is how sidecars end as far as the policy says: its modes, or Auto.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Mode string `json:"mode,omitempty"`

	// sidecars are the first containers that the policy declares as sidecars, or all but its main containers.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Sidecars string `json:"sidecars,omitempty"`

	// matchedPods is the number of pods that the policy selects and in which it says something about a container. Only
	// unfinished pods with restartPolicy Never or OnFailure count.
	// +optional
	MatchedPods int32 `json:"matchedPods"`

	// waitingPods is the number of matched pods whose main containers are not done, or whose sidecars drain.
	// +optional
	WaitingPods int32 `json:"waitingPods"`

	// terminatingPods is the number of matched pods whose sidecars are being ended.
	// +optional
	TerminatingPods int32 `json:"terminatingPods"`

	// stuckPods is the number of matched pods that are stuck: no usable mode is left, or somebody has to change the pod or a
	// policy. The condition Degraded gives the reason of one of them.
	// +optional
	StuckPods int32 `json:"stuckPods"`

	// dryRunPods is the number of matched pods whose sidecars the operator would end now if enforcement were Enforce.
	// +optional
	DryRunPods int32 `json:"dryRunPods"`

	// terminatedPods counts the pods that finished after their sidecars were ended for this policy, since the policy was
	// created. A crash of the operator may lose the counts of its last seconds.
	// +optional
	TerminatedPods int64 `json:"terminatedPods"`

	// failedAttempts counts the failed attempts to end sidecars for this policy, since the policy was created. An attempt
	// fails when it leaves a sidecar running. A crash of the operator may lose the counts of its last seconds.
	// +optional
	FailedAttempts int64 `json:"failedAttempts"`

	// lastTerminationTime is when a pod last finished after its sidecars were ended for this policy.
	// +optional
	LastTerminationTime *metav1.Time `json:"lastTerminationTime,omitempty"`

	// recentTerminations lists the latest results, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	RecentTerminations []RecentTermination `json:"recentTerminations,omitempty"`
}

// TerminationOutcome is how the termination of a pod's sidecars ended.
// +kubebuilder:validation:Enum=Terminated;Failed;WouldTerminate
type TerminationOutcome string

const (
	// OutcomeTerminated means that the sidecars ended and the pod finished.
	OutcomeTerminated TerminationOutcome = "Terminated"
	// OutcomeFailed means that a sidecar was still running at the deadline of an attempt, or came back.
	OutcomeFailed TerminationOutcome = "Failed"
	// OutcomeWouldTerminate means that the operator would have ended the sidecars if the policy were enforced.
	OutcomeWouldTerminate TerminationOutcome = "WouldTerminate"
)

// RecentTermination is the result of one termination.
type RecentTermination struct {
	// namespace is the pod's namespace. Only set by the cluster kind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// pod is the pod's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`

	// mode is the mode that was used.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// outcome is the result.
	// +required
	Outcome TerminationOutcome `json:"outcome,omitempty"`

	// durationMilliseconds is the time from the end of the last main container to the end of the pod.
	// +optional
	DurationMilliseconds int64 `json:"durationMilliseconds,omitempty"`

	// time is when the pod finished, the attempt failed, or the operator would have ended the sidecars.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
