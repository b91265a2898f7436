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
	// EnvIgnoreExitCode is "true" for exitCodes Ignore and "false" for Respect (any case). The default is Ignore, as
	// OpenKruise documents it since v1.6.
	EnvIgnoreExitCode = "KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE"
)

// Labels and annotations that the operator writes to pods.
const (
	// LabelTerminatedBy is the mode for which the pod's phase was written. A watch selects these pods by this label until
	// their sidecars have ended.
	LabelTerminatedBy = GroupName + "/terminated-by"
	// AnnotationPodPhase records which phase the operator wrote to the pod, and when. Through it the kubelet also handles
	// the patch as an update of the pod, not as a mere status change.
	AnnotationPodPhase = GroupName + "/pod-phase"
	// AnnotationPhaseGuard marks a pod whose written phase is final. An admission policy denies status updates that would
	// change the phase, which a kubelet may send before it sees the phase. The operator removes the annotation if the
	// kubelet does not tear the pod down in time.
	AnnotationPhaseGuard = GroupName + "/phase-guard"
	// AnnotationImageSwap records, for each container whose image was swapped, the original image, when it was swapped
	// and the restart count at that time.
	AnnotationImageSwap = GroupName + "/image-swap"
)

// LabelPolicy is the label of the operator's ImagePullJobs with the name of the policy, cut to the length of a label. The
// policy owns the job.
const LabelPolicy = GroupName + "/policy"

// PodConditionSidecarTerminated is the type of the pod condition that is written together with the phase. OpenKruise's
// webhook accepts a ContainerRecreateRequest for a finished pod only if the pod has a condition of this type.
const PodConditionSidecarTerminated = "SidecarTerminated"
