// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Environment variables that declare a container a sidecar (OpenKruise's convention). The operator reads literal values of
// regular containers only, not valueFrom and envFrom.
const (
	// EnvTerminate set to "true" (any case) makes its container a sidecar with mode CRR.
	EnvTerminate = "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT"
	// EnvTerminateWithImage set to an image makes its container a sidecar with mode Image and that image. Together with
	// EnvTerminate the mode is Auto with that image: CRR where OpenKruise's daemon runs, Image on virtual nodes.
	EnvTerminateWithImage = "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT_WITH_IMAGE"
	// EnvIgnoreExitCode is "true" for exitCodePolicy Ignore and "false" for Respect (any case). The default is Ignore, as
	// OpenKruise documents it since v1.6.
	EnvIgnoreExitCode = "KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE"
)

// AnnotationSidecars on a pod declares its sidecars, as in "istio-proxy,vault-agent": at most 32 names of regular containers, separated
// by commas, in at most 2,560 bytes. Spaces around a name are ignored, and so is a name that the pod does not have. Policies take
// precedence, and for their settings also the container's environment variables.
const AnnotationSidecars = GroupName + "/sidecars"

// LabelIgnore with value "true" on a pod or its namespace makes the operator leave the pod alone.
const LabelIgnore = GroupName + "/ignore"

// Labels and annotations of a pod. The operator marks pods, and admission policy sidecar-termination-outcome
// (config/admission/outcome.yaml) decides their outcome by the marks. Each annotation of a mark ends with a slash and the pod's UID:
// without them it counts for nothing, because it was copied from another pod or was in the template.
const (
	// LabelOutcome with value OutcomeMainContainers selects the pods whose outcome is that of their main containers.
	LabelOutcome = GroupName + "/outcome"
	// OutcomeMainContainers is the value of LabelOutcome.
	OutcomeMainContainers = "MainContainers"
	// AnnotationIgnoredExitCodes lists the containers whose exit codes do not count, as in "istio-proxy,vault-agent/UID".
	AnnotationIgnoredExitCodes = GroupName + "/ignored-exit-codes"
	// AnnotationEnd says when the pod may end, as in "PodPhase/UID". Without a value, the admission policy sets phase Succeeded once all
	// containers that count have exited 0, and no sidecar can run again.
	AnnotationEnd = GroupName + "/end"
	// EndExited means that a sidecar counts as ended once it exits after the main containers, although the kubelet would restart it.
	EndExited = "Exited"
	// EndRestarted means in addition that such a sidecar still counts as ended when it waits for its restart or runs again.
	EndRestarted = "Restarted"
	// EndWaiting means in addition that every sidecar that does not run counts as ended.
	EndWaiting = "Waiting"
	// EndPodPhase means that the pod ends although sidecars run: mode PodPhase ends them.
	EndPodPhase = "PodPhase"
	// EndCRR means the same, because OpenKruise has stopped the sidecars.
	EndCRR = "CRR"
	// EndFailed means that the operator has written phase Failed.
	EndFailed = "Failed"
	// AnnotationMainContainers is what the admission policy has found, or the operator where the policy has not, as in "Running/UID": one of the
	// values Mains.
	AnnotationMainContainers = GroupName + "/main-containers"
	// MainsRunning means that a container whose exit code counts has not exited 0. Only the admission policy says so.
	MainsRunning = "Running"
	// MainsSucceeded means that all of them have exited 0 before any reported disruption of the pod. Nothing takes that back.
	MainsSucceeded = "Succeeded"
	// MainsDecided means in addition that the pod's phase was set to Succeeded.
	MainsDecided = "Decided"
	// AnnotationImageSwap records, for each container whose image was swapped, the original image, when it was swapped
	// and the restart count at that time.
	AnnotationImageSwap = GroupName + "/image-swap"
)

// LabelPolicy is the label of the operator's ImagePullJobs with the name of the policy, cut to the length of a label. The
// policy owns the job.
const LabelPolicy = GroupName + "/policy"

// PodConditionSidecarTerminated is the type of a pod condition that OpenKruise's webhook requires before it accepts a
// ContainerRecreateRequest for a pod with a terminal phase. Pods that end by their phase have it, with status False.
const PodConditionSidecarTerminated = "SidecarTerminated"
