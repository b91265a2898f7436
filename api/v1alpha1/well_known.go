// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Environment variables by which a container declares itself a sidecar (OpenKruise's convention). Only a literal value
// on a regular container can be read; valueFrom and envFrom cannot.
const (
	// EnvTerminate set to "true" (any case) makes its container a sidecar that is ended by mode CRR.
	EnvTerminate = "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT"
	// EnvTerminateWithImage set to an image makes its container a sidecar that is ended by mode Image with that image.
	// Together with EnvTerminate the mode is CRR on real nodes and Image on virtual nodes; in between, on nodes that have
	// a kubelet and no OpenKruise daemon, it is what Auto comes to with that image.
	EnvTerminateWithImage = "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT_WITH_IMAGE"
	// EnvIgnoreExitCode is "true" for exitCodes Ignore and "false" for Respect (any case). OpenKruise's documentation
	// has Ignore as the default since its v1.6, and so has this operator.
	EnvIgnoreExitCode = "KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE"
)

// Labels and annotations that the operator writes to pods.
const (
	// LabelTerminatedBy is set to the mode by the patch that writes a pod's phase. A watch on it follows the pod to the
	// end of its sidecars.
	LabelTerminatedBy = GroupName + "/terminated-by"
	// AnnotationPodPhase records the phase that the operator wrote to the pod and when. It also makes the kubelet
	// handle the patch as an update of the pod and not as a mere status change.
	AnnotationPodPhase = GroupName + "/pod-phase"
	// AnnotationPhaseGuard marks a pod whose written phase is final. An admission policy refuses status updates that
	// would change it, which a kubelet that has not yet seen it may send. The operator removes the annotation when the
	// kubelet does not tear the pod down in time.
	AnnotationPhaseGuard = GroupName + "/phase-guard"
	// AnnotationImageSwap records, for each container whose image was swapped, the original image, when it was swapped
	// and the restart count at that time.
	AnnotationImageSwap = GroupName + "/image-swap"
)

// LabelPolicy is on each ImagePullJob that the operator creates: the name of the policy, cut to the length of a label. The
// job's owner is the policy itself.
const LabelPolicy = GroupName + "/policy"

// PodConditionSidecarTerminated is the type of the pod condition that goes with the phase patch. OpenKruise's webhook
// accepts a ContainerRecreateRequest for a finished pod only if the pod has a condition of this type.
const PodConditionSidecarTerminated = "SidecarTerminated"
