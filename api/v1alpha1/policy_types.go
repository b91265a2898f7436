// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode names the mechanism that ends a sidecar.
// +kubebuilder:validation:Enum=Auto;CRR;Image;PodPhase
type Mode string

const (
	// ModeAuto lets the operator choose by the pod's node and by what the cluster offers.
	ModeAuto Mode = "Auto"
	// ModeCRR asks OpenKruise's daemon, by a ContainerRecreateRequest, to stop the container: preStop, SIGTERM, grace
	// period, SIGKILL. It needs Kruise and a real node. With exitCodes Ignore the phase is written first, as by
	// ModePodPhase, and the daemon is asked where that has not ended the container by its deadline.
	ModeCRR Mode = "CRR"
	// ModeImage swaps the container's image in place for a quick-exit image.
	ModeImage Mode = "Image"
	// ModePodPhase writes the pod's terminal phase, upon which the kubelet tears the pod down. It needs a real node.
	ModePodPhase Mode = "PodPhase"
)

// ExitCodes says whether a sidecar's exit code counts for the pod's outcome.
// +kubebuilder:validation:Enum=Ignore;Respect
type ExitCodes string

const (
	// ExitCodesIgnore makes the pod's outcome that of its main containers alone.
	ExitCodesIgnore ExitCodes = "Ignore"
	// ExitCodesRespect leaves the pod's outcome to Kubernetes, where a sidecar that exits non-zero fails the pod.
	ExitCodesRespect ExitCodes = "Respect"
)

// Fallback says what follows an attempt that did not end a sidecar.
// +kubebuilder:validation:Enum=Enabled;Disabled
type Fallback string

const (
	// FallbackEnabled lets the next usable mode follow a mode that failed or cannot be used.
	FallbackEnabled Fallback = "Enabled"
	// FallbackDisabled uses the declared mode only.
	FallbackDisabled Fallback = "Disabled"
)

// Enforcement says whether a policy acts.
// +kubebuilder:validation:Enum=Enforce;DryRun
type Enforcement string

const (
	// EnforcementEnforce terminates sidecars.
	EnforcementEnforce Enforcement = "Enforce"
	// EnforcementDryRun writes nothing to pods, and reports what would have been done.
	EnforcementDryRun Enforcement = "DryRun"
)

// Acts reports whether a policy with this enforcement acts on pods. A value that this version does not know, which a newer
// definition lets through, does not.
func (e Enforcement) Acts() bool { return e == "" || e == EnforcementEnforce }

// QuickExitPath is an absolute path at which a quick-exit image has its program, or "default" for the paths of the
// shipped image, or "*" for an image that covers every command.
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self == 'default' || self == '*' || (self.matches('^(/[^/[:cntrl:]]+)+$') && !self.matches('/[.][.]?(/|$)'))",message="an entry of quickExitPaths must be an absolute path in its shortest form, such as /app/server, or default for the paths of the shipped image, or * for an image that covers every command"
// +kubebuilder:validation:XValidation:rule="!self.matches('^/(dev|proc|sys|etc/(hostname|hosts|resolv[.]conf))(/|$)')",message="an entry of quickExitPaths cannot be a path that container runtimes provide, which hides what the image has there: /dev, /proc, /sys, /etc/hostname, /etc/hosts or /etc/resolv.conf"
type QuickExitPath string

// TerminationSettings say how a sidecar is ended. A field that is unset is taken from the next place: the policy's
// spec, the container's environment variables, the operator's default.
// +kubebuilder:validation:XValidation:rule="!has(self.quickExitPaths) || size(self.quickExitPaths) == 0 || (has(self.image) && size(self.image) > 0)",message="quickExitPaths says which commands the image beside it covers: set image as well",fieldPath=".quickExitPaths"
type TerminationSettings struct {
	// mode is the mechanism that ends the sidecar: Auto, CRR, Image or PodPhase. Defaults to Auto, which uses CRR
	// where OpenKruise's daemon runs, PodPhase on other nodes with a kubelet, and Image on virtual nodes.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// image is the quick-exit image of mode Image, a whole reference: repository with tag or digest. It must exit 0
	// when started with the sidecar's own command; quickExitPaths says which commands it covers. Defaults to the
	// operator's --quick-exit-image.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9][A-Za-z0-9._:/@-]*$')",message="image must be an image reference such as registry.example/quick-exit:v1"
	Image string `json:"image,omitempty"`

	// quickExitPaths says where the image beside it has its program. Mode Image is used only for commands that this
	// covers, since a container that is restarted with an image without its command cannot start. An entry is an
	// absolute path, such as /opt/proxy/bin/proxy; default, for the paths of the shipped image; or *, for an image that
	// covers every command. The list is complete: default and /app/server together describe an image that was built
	// with --path /app/server.
	//
	// It needs an image at the same level, and says nothing about an image from elsewhere: that of the operator's
	// --quick-exit-image covers what its --quick-exit-paths says, and that of an environment variable every command.
	// An unset or empty list means default alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	QuickExitPaths []QuickExitPath `json:"quickExitPaths,omitempty"`

	// exitCodes says whether the sidecar's exit code counts. Ignore (the default): the pod's outcome is that of its
	// main containers. Respect: a sidecar that exits non-zero counts as Kubernetes counts it.
	// +optional
	ExitCodes ExitCodes `json:"exitCodes,omitempty"`

	// drainSeconds is how long after the end of the last main container the sidecar is left running, so that it can
	// flush what it holds. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`

	// terminationDeadlineSeconds is how long, beyond the pod's own grace period, an attempt may take before it counts
	// as failed. Defaults to 30.
	// +optional
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=3600
	TerminationDeadlineSeconds *int32 `json:"terminationDeadlineSeconds,omitempty"`

	// fallback says what follows a mode that failed or cannot be used. Enabled (the default): the next usable mode.
	// Disabled: nothing; the pod is reported as stuck.
	// +optional
	Fallback Fallback `json:"fallback,omitempty"`
}

// Sidecar declares one container as a sidecar.
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'PodPhase' && has(self.exitCodes) && self.exitCodes == 'Respect')",message="exitCodes Respect cannot be had with mode PodPhase, which sets the pod's outcome from its main containers alone",fieldPath=".exitCodes"
type Sidecar struct {
	// name is the name of a regular container of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	TerminationSettings `json:",inline"`
}

// ContainerName is the name of a regular container.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type ContainerName string

// PolicySpec is what both policy kinds declare.
// +kubebuilder:validation:XValidation:rule="has(self.sidecars) != has(self.mainContainers)",message="exactly one of sidecars and mainContainers must be set: sidecars names the containers to end, mainContainers those to wait for"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'PodPhase' && has(self.exitCodes) && self.exitCodes == 'Respect')",message="exitCodes Respect cannot be had with mode PodPhase, which sets the pod's outcome from its main containers alone",fieldPath=".exitCodes"
// +kubebuilder:validation:XValidation:rule="!has(self.sidecars) || !has(self.exitCodes) || self.exitCodes != 'Respect' || self.sidecars.all(s, !has(s.mode) || s.mode != 'PodPhase' || has(s.exitCodes))",message="a sidecar with mode PodPhase must set exitCodes Ignore where the policy sets Respect: the mode sets the pod's outcome from its main containers alone",fieldPath=".sidecars"
// +kubebuilder:validation:XValidation:rule="!has(self.sidecars) || !has(self.mode) || self.mode != 'PodPhase' || self.sidecars.all(s, !has(s.exitCodes) || s.exitCodes != 'Respect' || has(s.mode))",message="a sidecar with exitCodes Respect must set another mode where the policy sets PodPhase, which sets the pod's outcome from its main containers alone",fieldPath=".sidecars"
type PolicySpec struct {
	// podSelector selects the pods by label. The empty selector {} selects every pod. Only pods with restartPolicy
	// Never or OnFailure are ever acted on.
	// +required
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 64) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 64)",message="podSelector may hold at most 64 matchLabels and 64 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="each of the matchExpressions of podSelector may hold at most 64 values"
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// sidecars are the containers to end once every other regular container is done. Names that a pod does not have
	// are passed over. Their order has no meaning. Exactly one of sidecars and mainContainers must be set.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Sidecars []Sidecar `json:"sidecars,omitempty"`

	// mainContainers are the containers to wait for; every other regular container is a sidecar. Exactly one of
	// sidecars and mainContainers must be set.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	MainContainers []ContainerName `json:"mainContainers,omitempty"`

	TerminationSettings `json:",inline"`

	// enforcement says whether the policy acts. Enforce: it does. DryRun: nothing is written to pods, and events,
	// status and metrics say what would have been done.
	// +optional
	// +kubebuilder:default=Enforce
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// priority decides between policies of one kind that name the same container: the higher one wins, then the older,
	// then the one whose name comes first. A namespaced policy always wins over a cluster one.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority,omitempty"`

	// prePull has the quick-exit images that the policy can lead to pulled to nodes before they are needed, by one
	// ImagePullJob of OpenKruise for each image. The condition PrePulled reports how that goes, and says so where
	// OpenKruise cannot do it; sidecars are ended all the same. {} means every node. Absent: nothing is pulled.
	// +optional
	PrePull *PrePull `json:"prePull,omitempty"`
}

// PrePull says to which nodes quick-exit images are pulled, and how.
type PrePull struct {
	// nodeSelector selects the nodes by label. Defaults to all nodes. OpenKruise leaves out nodes with the label
	// type=virtual-kubelet.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 64) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 64)",message="nodeSelector may hold at most 64 matchLabels and 64 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64)",message="each of the matchExpressions of nodeSelector may hold at most 64 values"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// pullSecrets are the names of Secrets with registry credentials, in the policy's namespace, or for a cluster policy
	// in the operator's. OpenKruise reads them, and copies them to the namespace of its daemon; the operator does not.
	// One that does not exist is passed over by OpenKruise.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	PullSecrets []SecretName `json:"pullSecrets,omitempty"`

	// sandboxConfig is handed to the container runtime with each pull, for runtimes whose image pulls depend on labels or
	// annotations of the pod sandbox. It needs OpenKruise 1.4 or later.
	// +optional
	SandboxConfig *SandboxConfig `json:"sandboxConfig,omitempty"`
}

// SecretName is the name of a Secret.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
type SecretName string

// SandboxConfig is what the container runtime is told of the pod sandbox that an image is pulled for.
type SandboxConfig struct {
	// labels of the sandbox.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 317 && size(self[key]) <= 63)",message="a label may have a key of 1 to 317 characters and a value of at most 63"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the sandbox.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) >= 1 && size(key) <= 317 && size(self[key]) <= 4096)",message="an annotation may have a key of 1 to 317 characters and a value of at most 4096"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PolicyStatus is what the operator reports of a policy. Counts without a time are of pods that exist and are not
// finished.
type PolicyStatus struct {
	// observedGeneration is the generation of the policy that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// mode is the mode that the policy's sidecars have unless they set their own: spec.mode, or Auto.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// matchedPods is the number of unfinished pods with restartPolicy Never or OnFailure that the policy selects and
	// of which it names a container.
	// +optional
	MatchedPods int32 `json:"matchedPods"`

	// waitingPods is the number of matched pods whose main containers are not done.
	// +optional
	WaitingPods int32 `json:"waitingPods"`

	// terminatingPods is the number of matched pods whose sidecars are being ended.
	// +optional
	TerminatingPods int32 `json:"terminatingPods"`

	// stuckPods is the number of matched pods whose sidecars no usable mode could end, or that no mode can serve. The
	// condition Degraded has the reason of one of them.
	// +optional
	StuckPods int32 `json:"stuckPods"`

	// dryRunPods is the number of matched pods whose sidecars would be ended now if enforcement were Enforce.
	// +optional
	DryRunPods int32 `json:"dryRunPods"`

	// terminatedPods counts the pods that finished after their sidecars were ended for this policy, since the policy
	// was created. Terminations during the seconds of a crash of the operator may be missing.
	// +optional
	TerminatedPods int64 `json:"terminatedPods"`

	// failedAttempts counts the attempts to end sidecars for this policy that failed since the policy was created. An
	// attempt fails when it leaves a sidecar running. A crash of the operator may lose the counts of its last seconds.
	// +optional
	FailedAttempts int64 `json:"failedAttempts"`

	// lastTerminationTime is when a pod last finished after its sidecars were ended for this policy.
	// +optional
	LastTerminationTime *metav1.Time `json:"lastTerminationTime,omitempty"`

	// recent holds the newest results, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Recent []RecentTermination `json:"recent,omitempty"`

	// conditions: Ready is always present, and true while the policy can be acted on, whatever becomes of its pods.
	// Overridden, Degraded and Stalled are present only while they are true, and PrePulled only while spec.prePull is set.
	// Degraded tells of stuck pods, of a mode that cannot be used, and of a part of the policy that does not count.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TerminationOutcome is how the termination of a pod's sidecars ended.
// +kubebuilder:validation:Enum=Terminated;Failed;WouldTerminate
type TerminationOutcome string

const (
	// OutcomeTerminated means that the sidecars ended and the pod finished.
	OutcomeTerminated TerminationOutcome = "Terminated"
	// OutcomeFailed means that a sidecar was still running when its attempt's deadline had passed, or came back.
	OutcomeFailed TerminationOutcome = "Failed"
	// OutcomeWouldTerminate means that a DryRun policy would have ended the sidecars.
	OutcomeWouldTerminate TerminationOutcome = "WouldTerminate"
)

// RecentTermination is one result.
type RecentTermination struct {
	// namespace is the pod's namespace. Only set by the cluster kind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// pod is the pod's name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// mode is the mode that was used; CRR where the phase that it writes first was enough, too.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// outcome is how it ended.
	// +required
	Outcome TerminationOutcome `json:"outcome"`

	// milliseconds is the time from the end of the last main container to the end of the pod.
	// +optional
	Milliseconds int64 `json:"milliseconds,omitempty"`
}
