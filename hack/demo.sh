#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Shows what the operator is for: two Jobs with the same pod, and a policy that selects only one of them. Only that one
# completes. Exits 0 only if that is what happened. `make demo` runs it on the local cluster.
set -euo pipefail
export LC_ALL=C

cd "$(dirname "$0")/.."
KUBECONFIG=$(realpath "${KUBECONFIG:-.cluster/kubeconfig}")
export KUBECONFIG
kubectl=.cluster/bin/kubectl
[[ -x $kubectl ]] || kubectl=kubectl
namespace=sidecar-termination-demo
label=batch.kubernetes.io/job-name
trap 'echo "The demonstration failed. Look at the operator with: $kubectl -n sidecar-termination-system logs deployment/sidecar-termination-controller-manager" >&2' ERR

demo() { "$kubectl" -n "$namespace" "$@"; }

# now: seconds since the Jobs were created.
now() {
	local microseconds=$((${EPOCHREALTIME/./} - started))
	printf '%d.%d' $((microseconds / 1000000)) $((microseconds / 100000 % 10))
}

say() { printf '%6s s  %-14s  %s\n' "$(now)" "$1" "$2"; }

# until_pod JOB FIELD: waits until a field of the container statuses of the Job's pod has a value.
until_pod() { demo wait pod -l "$label=$1" --timeout=60s --for="jsonpath={.status.containerStatuses$2}" >/dev/null; }

pod() { demo get pod -l "$label=$1" -o "jsonpath={.items[0].status.containerStatuses$2}"; }

job() {
	cat <<-EOF
		apiVersion: batch/v1
		kind: Job
		metadata: {name: $1}
		spec:
		  backoffLimit: 0
		  template:
		    spec:
		      restartPolicy: Never
		      automountServiceAccountToken: false
		      terminationGracePeriodSeconds: 5
		      containers:
		      - name: log-shipper
		        image: localhost/busybox:1
		        imagePullPolicy: IfNotPresent
		        command: [/bin/sh, -c, "trap 'echo flushed; exit 0' TERM; sleep infinity & wait"]
		      - name: main
		        image: localhost/busybox:1
		        imagePullPolicy: IfNotPresent
		        command: [/bin/sh, -c, "echo working; sleep 3; echo done"]
		---
	EOF
}

"$kubectl" delete namespace "$namespace" --ignore-not-found --timeout=60s >/dev/null
cat <<'EOF'
Two Jobs with the same pod: container "main" works for 3 seconds, its sidecar "log-shipper" never ends by itself.
  with-policy     is selected by SidecarTerminationPolicy "log-shipper"
  without-policy  is not

EOF
"$kubectl" create namespace "$namespace" >/dev/null
started=${EPOCHREALTIME/./}
{
	job with-policy
	job without-policy
	cat <<-EOF
		apiVersion: sidecartermination.dev/v1alpha1
		kind: SidecarTerminationPolicy
		metadata: {name: log-shipper}
		spec:
		  podSelector: {matchLabels: {$label: with-policy}}
		  sidecars: [{name: log-shipper}]
	EOF
} | demo create -f - >/dev/null
say both "Jobs created"
for name in with-policy without-policy; do demo wait pod -l "$label=$name" --for=create --timeout=60s >/dev/null; done
# The ID stays when the container has ended: on a busy machine a wait for the running state may begin too late.
until_pod with-policy '[?(@.name=="main")].containerID'
say with-policy "both containers started"
until_pod with-policy '[?(@.name=="main")].state.terminated.exitCode'
say with-policy "main container ended with exit code $(pod with-policy '[?(@.name=="main")].state.terminated.exitCode')"
for ((tries = 0; tries < 300; tries++)); do
	message=$(demo get events --field-selector reason=Terminating -o 'jsonpath={.items[*].message}')
	[[ -z $message ]] || break
	sleep 0.1
done
[[ -n $message ]]
say with-policy "sidecar told to stop: $message"
until_pod with-policy '[?(@.name=="log-shipper")].state.terminated.exitCode'
say with-policy "sidecar ended with exit code $(pod with-policy '[?(@.name=="log-shipper")].state.terminated.exitCode')"
demo wait job with-policy --for=condition=Complete --timeout=60s >/dev/null
say with-policy "Job Complete"
until_pod without-policy '[?(@.name=="main")].state.terminated.exitCode'
ended=$(date -d "$(pod without-policy '[?(@.name=="main")].state.terminated.finishedAt')" +%s)
while ((EPOCHSECONDS < ended + 5)); do sleep 0.2; done
[[ -n $(pod without-policy '[?(@.name=="log-shipper")].state.running.startedAt') ]]
say without-policy "still hanging: its main container ended $((EPOCHSECONDS - ended)) s ago, its sidecar runs on"

demo wait stp log-shipper --for=jsonpath='{.status.terminatedPods}'=1 --timeout=60s >/dev/null
printf '\n$ kubectl get stp -n %s\n' "$namespace"
demo get stp
cat <<EOF

Try next:
  export KUBECONFIG=$KUBECONFIG
  # the pods, and what the operator said about them
  $kubectl -n $namespace get jobs,pods
  $kubectl -n $namespace get events --field-selector involvedObject.kind=Pod
  # let the policy select every pod of the namespace: the other Job completes as well
  $kubectl -n $namespace patch stp log-shipper --type merge -p '{"spec":{"podSelector":{"matchLabels":null}}}'
  $kubectl -n $namespace get jobs --watch
EOF
