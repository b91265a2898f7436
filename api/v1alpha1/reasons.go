// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a policy.
const (
	// ConditionReady is true while the policy is in force: its spec can be acted on. Pods do not change it, however many of
	// them are stuck: ConditionDegraded and status.stuckPods say that.
	ConditionReady = "Ready"
	// ConditionOverridden is present and true while another policy decides over a container that this one names.
	ConditionOverridden = "Overridden"
	// ConditionDegraded is present and true while pods are stuck, while a declared mode cannot be used and another one takes
	// its place, or while a part of the policy does not count. It shows a
	// part that does not count before stuck pods, and those before modes.
	ConditionDegraded = "Degraded"
	// ConditionStalled is present and true while the policy cannot be acted on until its author changes it.
	ConditionStalled = "Stalled"
	// ConditionPrePulled is present while a policy has prePull, and true while its quick-exit images are on every node
	// that it selects. Ready does not depend on it: an image that is not there is pulled when it is needed.
	ConditionPrePulled = "PrePulled"
)

// Reason is why something was done or not done. Events, conditions, metrics, logs and the command line share this list.
type Reason string

// Reasons for leaving a pod alone.
const (
	// ReasonRestartPolicyAlways means that the pod is no Job-type pod.
	ReasonRestartPolicyAlways Reason = "RestartPolicyAlways"
	// ReasonPodDeleted means that the pod is being deleted.
	ReasonPodDeleted Reason = "PodDeleted"
	// ReasonMirrorPod means that the pod mirrors a static pod, which only its node can end.
	ReasonMirrorPod Reason = "MirrorPod"
	// ReasonPodFinished means that the pod has finished without the operator.
	ReasonPodFinished Reason = "PodFinished"
	// ReasonNoSidecar means that no enforced policy and no environment variable makes a container a sidecar.
	ReasonNoSidecar Reason = "NoSidecar"
	// ReasonNoMainContainer means that every regular container is a sidecar, so that nothing says when the pod is done.
	ReasonNoMainContainer Reason = "NoMainContainer"
	// ReasonNativeSidecar means that a policy names a native sidecar, which Kubernetes ends itself.
	ReasonNativeSidecar Reason = "NativeSidecar"
	// ReasonUnreadableEnv means that one of the variables has no literal value.
	ReasonUnreadableEnv Reason = "UnreadableEnv"
	// ReasonInvalidEnv means that one of the variables has a value that is not understood.
	ReasonInvalidEnv Reason = "InvalidEnv"
	// ReasonUnreadableRecord means that somebody has spoilt an annotation in which the operator keeps what it has done to
	// the pod, so that it does nothing more.
	ReasonUnreadableRecord Reason = "UnreadableRecord"
	// ReasonPodTooLarge means that the pod has more containers than the operator handles, so that it leaves the pod alone.
	ReasonPodTooLarge Reason = "PodTooLarge"
	// ReasonInternalError means that the operator failed on the pod by a defect of its own, and leaves the pod alone.
	ReasonInternalError Reason = "InternalError"
)

// Reasons for waiting.
const (
	// ReasonPodNotScheduled means that the pod has no node yet.
	ReasonPodNotScheduled Reason = "PodNotScheduled"
	// ReasonMainContainersRunning means that a main container runs or may run again.
	ReasonMainContainersRunning Reason = "MainContainersRunning"
	// ReasonDraining means that drainSeconds have not passed.
	ReasonDraining Reason = "Draining"
	// ReasonNodeUnknown means that the pod's node is not known yet, so that no mode can be chosen.
	ReasonNodeUnknown Reason = "NodeUnknown"
	// ReasonSidecarStarting means that a sidecar is being created by the kubelet.
	ReasonSidecarStarting Reason = "SidecarStarting"
	// ReasonSettling means that the pod's status changed too recently for its phase to be written.
	ReasonSettling Reason = "Settling"
	// ReasonAttemptInProgress means that an attempt is under way and its deadline has not passed.
	ReasonAttemptInProgress Reason = "AttemptInProgress"
)

// Reasons for acting, and results.
const (
	// ReasonTerminating means that sidecars were told to stop.
	ReasonTerminating Reason = "Terminating"
	// ReasonFallback means that sidecars were told to stop by another mode than the declared one.
	ReasonFallback Reason = "Fallback"
	// ReasonWouldTerminate means that a DryRun policy would have told sidecars to stop.
	ReasonWouldTerminate Reason = "WouldTerminate"
	// ReasonTerminated means that every sidecar has ended.
	ReasonTerminated Reason = "Terminated"
	// ReasonAttemptFailed means that a sidecar did not end within the deadline of an attempt, or came back.
	ReasonAttemptFailed Reason = "AttemptFailed"
	// ReasonStuck means that every usable mode has failed.
	ReasonStuck Reason = "Stuck"
	// ReasonBackoffLimitRisk means that mode Image is about to restart a container of a pod with restartPolicy
	// OnFailure, which counts towards its Job's backoffLimit.
	ReasonBackoffLimitRisk Reason = "BackoffLimitRisk"
)

// Reasons why a mode cannot be used.
const (
	// ReasonNoUsableMode means that no mode can end the sidecar on this node of this cluster.
	ReasonNoUsableMode Reason = "NoUsableMode"
	// ReasonNoQuickExitImage means that mode Image is wanted and that no image is set at any level.
	ReasonNoQuickExitImage Reason = "NoQuickExitImage"
	// ReasonCommandNotCovered means that the quick-exit image does not have its program where the sidecar's command is, so
	// that the sidecar could not start with it.
	ReasonCommandNotCovered Reason = "CommandNotCovered"
	// ReasonImageNotAllowed means that the quick-exit image is not one that the operator's administrator permits.
	ReasonImageNotAllowed Reason = "ImageNotAllowed"
	// ReasonCRRUnavailable means that the cluster does not serve ContainerRecreateRequests, or not safely.
	ReasonCRRUnavailable Reason = "CRRUnavailable"
	// ReasonVirtualNode means that the mode needs a kubelet, and a virtual node has none.
	ReasonVirtualNode Reason = "VirtualNode"
	// ReasonNoKruiseDaemon means that mode CRR needs Kruise's daemon, which nodes of this kind do not run.
	ReasonNoKruiseDaemon Reason = "NoKruiseDaemon"
	// ReasonSidecarNotStarted means that mode CRR cannot end a container that has never started.
	ReasonSidecarNotStarted Reason = "SidecarNotStarted"
	// ReasonExitCodesRespected means that mode PodPhase would override an exit code that is to be respected.
	ReasonExitCodesRespected Reason = "ExitCodesRespected"
	// ReasonRestartsAllContainers means that an exit of the sidecar may run the main containers again.
	ReasonRestartsAllContainers Reason = "RestartsAllContainers"
	// ReasonPodPhaseDisabled means that the operator runs without mode PodPhase.
	ReasonPodPhaseDisabled Reason = "PodPhaseDisabled"
	// ReasonGracePeriodTooLong means that the phase of a pod with so long a grace period is not written.
	ReasonGracePeriodTooLong Reason = "GracePeriodTooLong"
	// ReasonUnknownSetting means that a setting has a value that this version of the operator does not know.
	ReasonUnknownSetting Reason = "UnknownSetting"
	// ReasonCRRDisabled means that the operator runs without mode CRR.
	ReasonCRRDisabled Reason = "CRRDisabled"
	// ReasonImageDisabled means that the operator runs without mode Image.
	ReasonImageDisabled Reason = "ImageDisabled"
	// ReasonWriteRefused means that the API server, or a policy or webhook that it asks, refuses the write by which the
	// mode ends sidecars.
	ReasonWriteRefused Reason = "WriteRefused"
)

// Reasons of policy conditions.
const (
	// ReasonInForce means that the policy is acted on.
	ReasonInForce Reason = "InForce"
	// ReasonNoPodsMatched means that the policy is in force and no unfinished pod matches it.
	ReasonNoPodsMatched Reason = "NoPodsMatched"
	// ReasonDryRun means that the policy is evaluated and not acted on.
	ReasonDryRun Reason = "DryRun"
	// ReasonInvalidSelector means that a selector of the policy cannot be parsed.
	ReasonInvalidSelector Reason = "InvalidSelector"
	// ReasonOverridden means that another policy decides over a container.
	ReasonOverridden Reason = "Overridden"
	// ReasonPrePulled means that every quick-exit image of the policy is on every node that prePull selects.
	ReasonPrePulled Reason = "PrePulled"
	// ReasonPrePulling means that an image is being pulled, or that there is no node yet to pull it to.
	ReasonPrePulling Reason = "PrePulling"
	// ReasonPrePullFailed means that a node could not pull an image.
	ReasonPrePullFailed Reason = "PrePullFailed"
	// ReasonPrePullUnavailable means that OpenKruise does not serve ImagePullJobs or refuses them, or that the operator
	// may not make them.
	ReasonPrePullUnavailable Reason = "PrePullUnavailable"
)

// Reasons that only the command line gives. They say what may come about, where the operator reports what has.
const (
	// ReasonMayHang means that a container that nothing declares a sidecar may keep its pod from finishing.
	ReasonMayHang Reason = "MayHang"
	// ReasonOverdue means that sidecars could have been told to stop a while ago and were not: the operator may be down.
	ReasonOverdue Reason = "Overdue"
	// ReasonDeletedWhileEnding means that a Job deletes its finished pods sooner than their sidecars may take to end.
	ReasonDeletedWhileEnding Reason = "DeletedWhileEnding"
	// ReasonImagePullRisk means that a quick-exit image that cannot be pulled would fail the pod.
	ReasonImagePullRisk Reason = "ImagePullRisk"
	// ReasonSidecarMatchesFailurePolicy means that a rule of a Job's podFailurePolicy may decide by the exit code of a sidecar.
	ReasonSidecarMatchesFailurePolicy Reason = "SidecarMatchesFailurePolicy"
	// ReasonContainerNotFound means that a policy names a container that the pod does not have.
	ReasonContainerNotFound Reason = "ContainerNotFound"
	// ReasonPolicyRefused means that the API server would refuse the policy of a manifest.
	ReasonPolicyRefused Reason = "PolicyRefused"
)
