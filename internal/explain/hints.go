// SPDX-License-Identifier: Apache-2.0

package explain

import "github.com/sidecar-termination/operator/api/v1alpha1"

// CheckSaysMore reports whether the subcommand check, which looks at the operator and at OpenKruise, has more to say about
// what was found.
func CheckSaysMore(reason v1alpha1.Reason) bool {
	switch reason {
	case v1alpha1.ReasonNoUsableMode, v1alpha1.ReasonImageNotAllowed, v1alpha1.ReasonCRRUnavailable, v1alpha1.ReasonOverdue:
		return true
	}
	return false
}

// hintForSeveral is that of ReasonMayHang where any of several containers may be the one.
const hintForSeveral = "name those that run until they are stopped under sidecars in a SidecarTerminationPolicy, or all that end by themselves under mainContainers"

// hints say, by reason, what to do next.
var hints = map[v1alpha1.Reason]string{
	v1alpha1.ReasonRestartPolicyAlways:   "set restartPolicy to Never or OnFailure if the pod is meant to end",
	v1alpha1.ReasonNoMainContainer:       "leave at least one container undeclared, or name the mains by mainContainers",
	v1alpha1.ReasonNativeSidecar:         "nothing: Kubernetes ends native sidecars itself",
	v1alpha1.ReasonUnreadableEnv:         "set the variable by value, not by valueFrom or envFrom, or name the container in a policy",
	v1alpha1.ReasonInvalidEnv:            "correct the value, or name the container in a policy",
	v1alpha1.ReasonUnreadableRecord:      "remove the annotation that the message names: kubectl annotate pod NAME ANNOTATION-",
	v1alpha1.ReasonPodTooLarge:           "split the pod",
	v1alpha1.ReasonInternalError:         "report what the operator's log says about the pod",
	v1alpha1.ReasonDryRun:                "set enforcement to Enforce in the policy when you are content with what it would do",
	v1alpha1.ReasonNoUsableMode:          "set image in the policy, or the operator's --quick-exit-image, or install OpenKruise",
	v1alpha1.ReasonNoQuickExitImage:      "set image in the policy, or the operator's --quick-exit-image",
	v1alpha1.ReasonImageNotAllowed:       "name an image of the operator's list (--allowed-quick-exit-image), or leave image out",
	v1alpha1.ReasonCRRUnavailable:        "install OpenKruise, or set mode to Auto",
	v1alpha1.ReasonCRRDisabled:           "set mode to Auto, or run the operator with --crr=Enabled",
	v1alpha1.ReasonImageDisabled:         "set mode to Auto, or run the operator with --image-swap=Enabled",
	v1alpha1.ReasonPodPhaseDisabled:      "set mode to Auto, or run the operator with --pod-phase=Enabled",
	v1alpha1.ReasonGracePeriodTooLong:    "shorten terminationGracePeriodSeconds, or set mode to PodPhase in a policy, or raise the operator's --pod-phase-max-grace-period",
	v1alpha1.ReasonUnknownSetting:        "upgrade the operator, whose version is older than the definition of the policy, or set the field to another value",
	v1alpha1.ReasonMirrorPod:             "nothing: end the static pod by its manifest on the node",
	v1alpha1.ReasonVirtualNode:           "set mode to Auto and an image, which is how sidecars end on virtual nodes",
	v1alpha1.ReasonNoKruiseDaemon:        "set mode to Auto, or have pods of this policy run on nodes with OpenKruise's daemon",
	v1alpha1.ReasonImagePullRisk:         "set mode to Auto, which uses PodPhase there, or have the image pulled ahead by prePull of the policy, which needs OpenKruise's daemon on the node",
	v1alpha1.ReasonExitCodesRespected:    "set exitCodes to Ignore, or another mode than PodPhase",
	v1alpha1.ReasonRestartsAllContainers: "take the rule RestartAllContainers off the sidecar, or use mode PodPhase",
	v1alpha1.ReasonBackoffLimitRisk:      "set mode to Auto, or restartPolicy to Never, or raise backoffLimit",
	v1alpha1.ReasonCommandNotCovered:     "have an image that covers the command (sidecar-termination-operator quick-exit-image --help), or set mode to Auto",
	v1alpha1.ReasonPolicyRefused:         "correct the policy: kubectl explain sidecarterminationpolicy.spec",
	v1alpha1.ReasonInvalidSelector:       "correct that selector, whose operators are In, NotIn, Exists and DoesNotExist",
	v1alpha1.ReasonStuck:                 "look at the container's own logs and at the failed attempts, then delete the pod if need be",
	v1alpha1.ReasonAttemptFailed:         "raise terminationDeadlineSeconds if the sidecar needs longer",
	v1alpha1.ReasonDeletedWhileEnding:    "set ttlSecondsAfterFinished to more than terminationGracePeriodSeconds, and no history limit to 0, if the sidecars need their token, their log or all of their grace period",
	v1alpha1.ReasonOverdue:               "see whether the operator runs and may do its work",
	v1alpha1.ReasonMayHang:               "name it under sidecars in a SidecarTerminationPolicy, or list all that end by themselves under mainContainers",
}
