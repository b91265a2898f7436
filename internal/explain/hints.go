// SPDX-License-Identifier: Apache-2.0

package explain

import "github.com/sidecar-termination/operator/api/v1alpha1"

// CheckSaysMore reports whether the subcommand check, which examines the operator and OpenKruise, has more details on the
// reason.
func CheckSaysMore(reason v1alpha1.Reason) bool {
	switch reason {
	case v1alpha1.ReasonNoUsableMode, v1alpha1.ReasonNamespaceNotWatched, v1alpha1.ReasonImageNotAllowed, v1alpha1.ReasonCRRUnavailable, v1alpha1.ReasonOverdue, v1alpha1.ReasonWriteRefused, v1alpha1.ReasonOutcomeNotDecided:
		return true
	}
	return false
}

// hintForSeveral is the hint of ReasonMayHang if any of several containers may be the sidecar.
const hintForSeveral = "list the sidecars under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers"

// hints say by reason what to do next.
var hints = map[v1alpha1.Reason]string{
	v1alpha1.ReasonRestartPolicyAlways:   "if the pod should end, set restartPolicy to Never or OnFailure",
	v1alpha1.ReasonNoMainContainer:       "leave at least one container undeclared, or list the main containers under mainContainers",
	v1alpha1.ReasonNativeSidecar:         "no action needed: Kubernetes ends native sidecars itself",
	v1alpha1.ReasonInvalidSidecars:       "correct the annotation: at most 32 names of regular containers of the pod, separated by commas",
	v1alpha1.ReasonOptedOut:              "remove the label if the operator should end the pod's sidecars",
	v1alpha1.ReasonJobsForbidden:         "install the operator with component include-injected, or with the chart's value includeInjected",
	v1alpha1.ReasonInvalidEnv:            "set a valid value instead of this one, valueFrom or envFrom, or name the container in a policy",
	v1alpha1.ReasonInvalidAnnotation:     "remove the annotation that the message names: kubectl annotate pod NAME ANNOTATION-",
	v1alpha1.ReasonPodTooLarge:           "split the pod",
	v1alpha1.ReasonInternalError:         "report the messages about this pod in the operator's log",
	v1alpha1.ReasonDryRun:                "set enforcement to Enforce in the policy to let it act",
	v1alpha1.ReasonNodeKindUnknown:       "set --node-kind of the operator to the kind of all nodes of its namespaces, or set mode to Auto and an image that covers the command",
	v1alpha1.ReasonNamespaceNotWatched:   "add the namespace to --watch-namespaces of the operator and grant it the permissions there, or move the workload",
	v1alpha1.ReasonNoUsableMode:          "set image in the policy, or the operator's --quick-exit-image, or install OpenKruise",
	v1alpha1.ReasonNoQuickExitImage:      "set image in the policy, or the operator's --quick-exit-image",
	v1alpha1.ReasonImageNotAllowed:       "use an image that --allowed-quick-exit-image of the operator lists, or remove image",
	v1alpha1.ReasonCRRUnavailable:        "install OpenKruise, or set mode to Auto",
	v1alpha1.ReasonModeDisabled:          "set mode to Auto, or run the operator with the flag that the message names set to Enabled",
	v1alpha1.ReasonGracePeriodTooLong:    "shorten terminationGracePeriodSeconds, or declare the sidecar in a policy, or use an image or OpenKruise",
	v1alpha1.ReasonOutcomeNotDecided:     "install admission policy sidecar-termination-outcome, which config/default and the Helm chart have on Kubernetes 1.36 and later",
	v1alpha1.ReasonUnknownSetting:        "upgrade the operator, which is older than the policy's CRD, or set the field to another value",
	v1alpha1.ReasonMirrorPod:             "remove the manifest of the static pod from its node",
	v1alpha1.ReasonVirtualNode:           "set mode to Auto and an image: virtual nodes support mode Image only",
	v1alpha1.ReasonNoKruiseDaemon:        "set mode to Auto, or run these pods on nodes with OpenKruise's daemon",
	v1alpha1.ReasonExitCodesRespected:    "set exitCodePolicy to Ignore, or a mode other than PodPhase",
	v1alpha1.ReasonRestartsAllContainers: "remove the rule RestartAllContainers from the sidecar, or use mode PodPhase",
	v1alpha1.ReasonBackoffLimitRisk:      "set mode to Auto, or restartPolicy to Never, or raise backoffLimit",
	v1alpha1.ReasonCommandNotCovered:     "use an image that covers the command, or set mode to Auto",
	v1alpha1.ReasonWriteRefused:          "grant the operator's ServiceAccount the permission that the message names, or exempt it from the admission policy or webhook that the message names",
	v1alpha1.ReasonIneffectiveEnv:        "set " + v1alpha1.EnvTerminate + " to \"true\" as well, or name the container in a policy",
	v1alpha1.ReasonContainerNotFound:     "correct the name in spec.sidecars or spec.mainContainers of the policy, or remove the entry",
	v1alpha1.ReasonInvalidSelector:       "correct the selector: its operators are In, NotIn, Exists and DoesNotExist",
	v1alpha1.ReasonStuck:                 "read the container's log and the failed attempts, then delete the pod if necessary",
	v1alpha1.ReasonAttemptFailed:         "if the sidecar needs more time, raise terminationDeadlineSeconds",
	v1alpha1.ReasonDeletedWhileEnding:    "if the sidecars need their token, log or grace period, set ttlSecondsAfterFinished to more than terminationGracePeriodSeconds, and no history limit to 0",
	v1alpha1.ReasonForeignFinalizer:      "if the sidecars need their grace period, do not delete the pod before its sidecars have ended (ttlSecondsAfterFinished, history limits, workflow engines), or use mode Image or CRR, which do not use the phase",
	v1alpha1.ReasonOverdue:               "check that the operator is running and has its permissions",
	v1alpha1.ReasonMayHang:               "list it under sidecars in a SidecarTerminationPolicy, or all containers that exit by themselves under mainContainers",
	v1alpha1.ReasonInvalidManifest:       "correct the field that the message names",
	v1alpha1.ReasonNotChecked:            "if the object creates no pods that finish, exclude it with --ignore-kind KIND.GROUP; otherwise lint a manifest of its pods",
}
