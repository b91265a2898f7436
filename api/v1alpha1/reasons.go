// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a policy.
const (
	// ConditionReady is true while the operator can act on the policy. Stuck pods do not change it; ConditionDegraded and
	// status.stuckPods report them.
	ConditionReady = "Ready"
	// ConditionOverridden is present and true while another policy takes precedence for the role of a container, or for a field.
	ConditionOverridden = "Overridden"
	// ConditionDegraded is present and true while pods are stuck, while includeInjected has no effect, while no admission policy decides
	// the outcome of pods, or while another mode replaces a declared one that cannot be used. It reports the first of these that holds.
	ConditionDegraded = "Degraded"
	// ConditionStalled is present and true while the operator cannot act on the policy until its author changes it.
	ConditionStalled = "Stalled"
	// ConditionPrePulled is present while a policy has prePull, and true while its quick-exit images are on every selected
	// node. Ready does not depend on it: a node pulls a missing image when it needs it.
	ConditionPrePulled = "PrePulled"
)

// Reason is why something was done or not done. Events, conditions, metrics, logs and the command line share this list.
type Reason string

// Reasons for leaving a pod alone.
const (
	// ReasonRestartPolicyAlways means that the pod is not a Job-type pod.
	ReasonRestartPolicyAlways Reason = "RestartPolicyAlways"
	// ReasonPodDeleted means that the pod is being deleted.
	ReasonPodDeleted Reason = "PodDeleted"
	// ReasonPodDisrupted means that the pod is being evicted, or that its kubelet or another controller has ended it.
	ReasonPodDisrupted Reason = "PodDisrupted"
	// ReasonMirrorPod means that the pod mirrors a static pod, which only its node can end.
	ReasonMirrorPod Reason = "MirrorPod"
	// ReasonPodFinished means that the pod has finished. As a reason against mode Image it means that the phase is terminal.
	ReasonPodFinished Reason = "PodFinished"
	// ReasonNoSidecar means that no enforced policy or environment variable declares a sidecar in the pod.
	ReasonNoSidecar Reason = "NoSidecar"
	// ReasonNoMainContainer means that every regular container is a sidecar, so no main container says when the pod is done.
	ReasonNoMainContainer Reason = "NoMainContainer"
	// ReasonNativeSidecar means that a policy names a native sidecar, which Kubernetes ends itself.
	ReasonNativeSidecar Reason = "NativeSidecar"
	// ReasonInvalidSidecars means that the list in the pod's annotation AnnotationSidecars is too long, so that it declares nothing.
	ReasonInvalidSidecars Reason = "InvalidSidecars"
	// ReasonOptedOut means that label LabelIgnore of the pod or its namespace keeps the operator away.
	ReasonOptedOut Reason = "OptedOut"
	// ReasonJobsForbidden means that a policy has includeInjected, and the operator may not get the Jobs of its pods.
	ReasonJobsForbidden Reason = "JobsForbidden"
	// ReasonInvalidEnv means that one of the operator's environment variables has no literal value or an invalid one.
	ReasonInvalidEnv Reason = "InvalidEnv"
	// ReasonInvalidAnnotation means that an annotation in which the operator records its attempts is corrupt, so that the
	// operator leaves the pod alone.
	ReasonInvalidAnnotation Reason = "InvalidAnnotation"
	// ReasonPodTooLarge means that the pod has more containers or larger fields than the operator handles.
	ReasonPodTooLarge Reason = "PodTooLarge"
	// ReasonInternalError means that the operator failed on the pod because of a bug, and leaves the pod alone.
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
	// ReasonNodeUnknown means that the operator has not seen the pod's node yet, so that it cannot choose a mode.
	ReasonNodeUnknown Reason = "NodeUnknown"
	// ReasonSidecarStarting means that the kubelet is creating a sidecar.
	ReasonSidecarStarting Reason = "SidecarStarting"
	// ReasonMarking means that the operator is writing to the pod which exit codes do not count, or that its main containers have succeeded.
	ReasonMarking Reason = "Marking"
	// ReasonAttemptInProgress means that an attempt is in progress and its deadline has not passed.
	ReasonAttemptInProgress Reason = "AttemptInProgress"
)

// Reasons for acting, and results.
const (
	// ReasonTerminating means that the operator is ending sidecars.
	ReasonTerminating Reason = "Terminating"
	// ReasonFallback means that the operator is ending sidecars by another mode than the declared or previous one.
	ReasonFallback Reason = "Fallback"
	// ReasonWouldTerminate means that the operator would end sidecars if the policy were enforced.
	ReasonWouldTerminate Reason = "WouldTerminate"
	// ReasonTerminated means that every sidecar has ended.
	ReasonTerminated Reason = "Terminated"
	// ReasonFinishedByUser means that somebody has ended the sidecars of a stuck pod with the subcommand finish.
	ReasonFinishedByUser Reason = "FinishedByUser"
	// ReasonAttemptFailed means that a sidecar did not end within the deadline of an attempt, or came back.
	ReasonAttemptFailed Reason = "AttemptFailed"
	// ReasonStuck means that every usable mode has failed.
	ReasonStuck Reason = "Stuck"
	// ReasonDecidedTooLate means that the pod reads Failed although its main containers have succeeded: admission policy
	// sidecar-termination-outcome was not at work, and the kubelet was faster than the operator.
	ReasonDecidedTooLate Reason = "DecidedTooLate"
	// ReasonBackoffLimitRisk means that ending the sidecars of a pod with restartPolicy OnFailure restarts some, which counts towards its
	// Job's backoffLimit.
	ReasonBackoffLimitRisk Reason = "BackoffLimitRisk"
	// ReasonDeadlineRisk means that the activeDeadlineSeconds of the pod or its Job may pass before the sidecars have ended.
	ReasonDeadlineRisk Reason = "DeadlineRisk"
	// ReasonOrderNotKept means that the pod's phase ends sidecars at once that terminationOrder separates.
	ReasonOrderNotKept Reason = "OrderNotKept"
)

// Reasons why a mode cannot be used.
const (
	// ReasonNoUsableMode means that no mode can end the sidecar on this node of this cluster.
	ReasonNoUsableMode Reason = "NoUsableMode"
	// ReasonNoQuickExitImage means that mode Image needs an image and none is set at any level.
	ReasonNoQuickExitImage Reason = "NoQuickExitImage"
	// ReasonCommandNotCovered means that the quick-exit image does not cover the sidecar's command, so that the sidecar could
	// not start with it.
	ReasonCommandNotCovered Reason = "CommandNotCovered"
	// ReasonImageNotAllowed means that the operator's administrator does not permit the quick-exit image.
	ReasonImageNotAllowed Reason = "ImageNotAllowed"
	// ReasonCRRUnavailable means that the cluster does not serve ContainerRecreateRequests, or that OpenKruise's webhook does not
	// guard them, or that an operator for single namespaces cannot tell.
	ReasonCRRUnavailable Reason = "CRRUnavailable"
	// ReasonVirtualNode means that the mode needs a kubelet, and a virtual node has none.
	ReasonVirtualNode Reason = "VirtualNode"
	// ReasonNodeKindUnknown means that the operator does not read nodes and its flags do not say which kind they have, so that only
	// mode Image can be used.
	ReasonNodeKindUnknown Reason = "NodeKindUnknown"
	// ReasonNoKruiseDaemon means that mode CRR needs OpenKruise's daemon, which nodes of this kind do not run.
	ReasonNoKruiseDaemon Reason = "NoKruiseDaemon"
	// ReasonSidecarNotStarted means that mode CRR cannot end a container that has never started.
	ReasonSidecarNotStarted Reason = "SidecarNotStarted"
	// ReasonExitCodesRespected means that mode PodPhase would override the exit code of a sidecar with exitCodePolicy Respect.
	ReasonExitCodesRespected Reason = "ExitCodesRespected"
	// ReasonRestartsAllContainers means that an exit of the sidecar may restart the main containers.
	ReasonRestartsAllContainers Reason = "RestartsAllContainers"
	// ReasonGracePeriodTooLong means that the pod's grace period is longer than mode PodPhase allows.
	ReasonGracePeriodTooLong Reason = "GracePeriodTooLong"
	// ReasonUnknownSetting means that a setting has a value that this version of the operator does not know.
	ReasonUnknownSetting Reason = "UnknownSetting"
	// ReasonModeDisabled means that the operator runs with the mode turned off.
	ReasonModeDisabled Reason = "ModeDisabled"
	// ReasonWriteRefused means that the API server, an admission policy or a webhook denied the mode's last write.
	ReasonWriteRefused Reason = "WriteRefused"
)

// Reasons of policy conditions.
const (
	// ReasonEnforced means that the operator acts on the policy.
	ReasonEnforced Reason = "Enforced"
	// ReasonIdle means that the policy is enforced and no unfinished pod matches it now. Pods that have finished
	// do not count; status.terminatedPods has those whose sidecars were terminated.
	ReasonIdle Reason = "Idle"
	// ReasonDryRun means that the operator evaluates the policy and does not act on it.
	ReasonDryRun Reason = "DryRun"
	// ReasonOutcomeNotDecided means that the cluster has neither of the admission policies sidecar-termination-outcome and
	// sidecar-termination-phase, so that a kubelet may take the outcome of a pod back.
	ReasonOutcomeNotDecided Reason = "OutcomeNotDecided"
	// ReasonInvalidSelector means that a selector of the policy cannot be parsed.
	ReasonInvalidSelector Reason = "InvalidSelector"
	// ReasonOverridden means that another policy takes precedence for the role of a container, or for a field.
	ReasonOverridden Reason = "Overridden"
	// ReasonPrePulled means that every quick-exit image of the policy is on every node that prePull selects.
	ReasonPrePulled Reason = "PrePulled"
	// ReasonPrePulling means that an image is being pulled, or that there is no node yet to pull it to.
	ReasonPrePulling Reason = "PrePulling"
	// ReasonPrePullFailed means that a node could not pull an image.
	ReasonPrePullFailed Reason = "PrePullFailed"
	// ReasonPrePullUnavailable means that OpenKruise does not serve ImagePullJobs or denies them, or that the operator may
	// not create them.
	ReasonPrePullUnavailable Reason = "PrePullUnavailable"
)

// Reasons that only the command line reports. They predict what may happen; the operator's own reasons say what happened.
const (
	// ReasonMayHang means that a container that is not declared a sidecar may keep its pod from finishing.
	ReasonMayHang Reason = "MayHang"
	// ReasonOverdue means that sidecars should have been stopped a while ago but are still running: the operator may be down.
	ReasonOverdue Reason = "Overdue"
	// ReasonDeletedWhileEnding means that a Job may delete its finished pods before their sidecars have ended.
	ReasonDeletedWhileEnding Reason = "DeletedWhileEnding"
	// ReasonForeignFinalizer means that a finalizer on the pod may shorten the grace period of its sidecars.
	ReasonForeignFinalizer Reason = "ForeignFinalizer"
	// ReasonSidecarMatchesFailurePolicy means that a rule of a Job's podFailurePolicy may match the exit code of a sidecar.
	ReasonSidecarMatchesFailurePolicy Reason = "SidecarMatchesFailurePolicy"
	// ReasonNamespaceNotWatched means that the operator does not watch the namespace, or no cluster policies, because it was installed
	// for other namespaces.
	ReasonNamespaceNotWatched Reason = "NamespaceNotWatched"
	// ReasonNotSelected means that a policy does not select the pod, because of its labels or those of its namespace.
	ReasonNotSelected Reason = "NotSelected"
	// ReasonIneffectiveEnv means that an environment variable resembles one of the operator's and has no effect: its name is
	// misspelled, or nothing declares its container a sidecar.
	ReasonIneffectiveEnv Reason = "IneffectiveEnv"
	// ReasonIneffectiveLabel means that a label or an annotation resembles one of the operator's and has no effect: its key is misspelled,
	// it has another value, or it is not in the metadata of the pod.
	ReasonIneffectiveLabel Reason = "IneffectiveLabel"
	// ReasonContainerNotFound means that a policy or the pod's annotation names a container that the pod does not have.
	ReasonContainerNotFound Reason = "ContainerNotFound"
	// ReasonInvalidManifest means that the API server would reject a policy or a workload in a manifest, or ignore a field of its
	// pods.
	ReasonInvalidManifest Reason = "InvalidManifest"
	// ReasonNotChecked means that lint could not check an object of a manifest, or found nothing to check.
	ReasonNotChecked Reason = "NotChecked"
)
