// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

const (
	// phaseRetryInterval is how often one pod tries the phase again on a kubelet version that ignores it.
	phaseRetryInterval = 30 * time.Minute
	// unreportedPods is how many pods in a row must show plan.PhaseUnreported. A hanging hook makes one pod show it.
	unreportedPods = 3
	// maxKubelets limits the versions that are remembered, and maxKubeletVersion the length of each: nodes write them.
	maxKubelets       = 64
	maxKubeletVersion = 64
)

// usableVersion reports whether the version may be remembered and be a metric's label. Others count as unknown.
func usableVersion(version string) bool {
	const special = ".+_-"
	return version != "" && len(version) <= maxKubeletVersion && !strings.ContainsFunc(version, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(special, r)
	})
}

// kubelets is what the operator has learned about written phases, by kubelet version. Only the leader learns. A restarted operator
// learns again.
type kubelets struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	versions map[string]*kubeletRecord
}

// kubeletRecord is what pods have shown about the kubelets of one version.
type kubeletRecord struct {
	seen       time.Time // the last evidence
	honored    time.Time // the last plan.PhaseHonored
	unreported int       // pods in a row with plan.PhaseUnreported
	ignores    bool
	// retryAt is when a pod may try the phase again, and retrying the last one that did.
	retryAt  time.Time
	retrying types.UID
}

// retryDue reports whether a pod may try the phase again. The record may be nil.
func (r *kubeletRecord) retryDue(now time.Time) bool {
	return r != nil && r.ignores && !now.Before(r.retryAt)
}

// of returns what the operator knows about the kubelet of the node, or the zero value without a node.
func (k *kubelets) of(node *corev1.Node) plan.Kubelet {
	if node == nil || !usableVersion(node.Status.NodeInfo.KubeletVersion) {
		return plan.Kubelet{}
	}
	kubelet := plan.Kubelet{Version: node.Status.NodeInfo.KubeletVersion}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			kubelet.ReadySince = c.LastTransitionTime.Time
		}
	}
	if k == nil {
		return kubelet
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	record := k.versions[kubelet.Version]
	kubelet.IgnoresPhase = record != nil && record.ignores
	return kubelet
}

// learn adds evidence of a phase that was written at the given time. It reports whether the version now ignores phases, and whether
// that is new. Evidence is void if another kubelet of the version has honored a phase since.
func (k *kubelets) learn(version string, evidence plan.PhaseEvidence, written time.Time) (ignores, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	record, now := k.record(version), k.clock.Now()
	before := record.ignores
	switch {
	case evidence == plan.PhaseHonored:
		*record = kubeletRecord{honored: now}
	case !record.honored.Before(written):
		return record.ignores, false
	case evidence == plan.PhaseUnreported:
		record.unreported++
		record.ignores = record.ignores || record.unreported >= unreportedPods
	case evidence == plan.PhaseIgnored:
		record.ignores = true
	}
	record.seen = now
	switch {
	case record.ignores && !before:
		record.retryAt = now.Add(phaseRetryInterval)
		kubeletIgnoresPhase.WithLabelValues(version).Set(1)
	case before && !record.ignores:
		kubeletIgnoresPhase.DeleteLabelValues(version)
	}
	return record.ignores, record.ignores != before
}

// record returns the version's record, or a new one in place of the oldest.
func (k *kubelets) record(version string) *kubeletRecord {
	if record := k.versions[version]; record != nil {
		return record
	}
	if len(k.versions) >= maxKubelets {
		k.forgetOldest()
	}
	if k.versions == nil {
		k.versions = map[string]*kubeletRecord{}
	}
	k.versions[version] = &kubeletRecord{}
	return k.versions[version]
}

// forgetOldest forgets the version with the oldest evidence, if possible one that does not ignore phases.
func (k *kubelets) forgetOldest() {
	oldest := ""
	for version, record := range k.versions {
		other := k.versions[oldest]
		if other == nil || other.ignores && !record.ignores || other.ignores == record.ignores && record.seen.Before(other.seen) {
			oldest = version
		}
	}
	delete(k.versions, oldest)
	kubeletIgnoresPhase.DeleteLabelValues(oldest)
}

// isRetry reports whether the pod tries the phase again.
func (k *kubelets) isRetry(version string, uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	record := k.versions[version]
	return record != nil && record.retrying == uid
}

// retryDue reports whether a pod may try the phase again.
func (k *kubelets) retryDue(version string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.versions[version].retryDue(k.clock.Now())
}

// retry makes the pod the one that tries the phase again, unless another was faster.
func (k *kubelets) retry(version string, uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	record, now := k.versions[version], k.clock.Now()
	if !record.retryDue(now) {
		return false
	}
	record.retrying, record.retryAt = uid, now.Add(phaseRetryInterval)
	return true
}

// kubelet judges the phase that this process wrote to the pod last, and returns what the operator knows about the pod's kubelet for
// the next decision. For a pod that tries the phase again, the kubelet does not count as one that ignores phases.
func (s *podStates) kubelet(snapshot plan.Snapshot, now time.Time) plan.Kubelet {
	kubelet, uid := snapshot.Kubelet, snapshot.Pod.UID
	if ignores, learned := s.learn(snapshot, now); learned {
		kubelet.IgnoresPhase = ignores
	}
	switch {
	case !kubelet.IgnoresPhase:
	case s.kubelets.isRetry(kubelet.Version, uid):
		kubelet.IgnoresPhase = false
	case s.kubelets.retryDue(kubelet.Version):
		snapshot.Kubelet.IgnoresPhase = false
		if beginsWithPhase(plan.Next(snapshot, now)) && s.kubelets.retry(kubelet.Version, uid) {
			kubelet.IgnoresPhase = false
		}
	}
	return kubelet
}

// beginsWithPhase reports whether the first attempt on a pod writes its phase, now or once the pod is stable.
func beginsWithPhase(decision plan.Decision) bool {
	if decision.Tried != "" {
		return false
	}
	for _, action := range decision.Actions {
		if action.Mode == v1alpha1.ModePodPhase {
			return true
		}
	}
	return decision.Reason == v1alpha1.ReasonStabilizing
}

// learn adds what the pod shows about its kubelet, and reports a change.
func (s *podStates) learn(snapshot plan.Snapshot, now time.Time) (ignores, learned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(snapshot.Pod)
	state := s.pods[key]
	if state == nil || state.uid != snapshot.Pod.UID || state.trial == nil {
		return false, false
	}
	evidence, over := state.trial.See(snapshot, now)
	written := state.trial.Written()
	if over {
		state.trial = nil
	}
	if evidence == "" {
		return false, false
	}
	ignores, changed := s.kubelets.learn(snapshot.Kubelet.Version, evidence, written)
	if changed {
		s.reporter.kubeletLearned(snapshot, key, state, ignores)
	}
	return ignores, true
}

// recordPhase begins to follow a phase that this process has just written to the pod.
func (s *podStates) recordPhase(snapshot plan.Snapshot, decision plan.Decision) {
	if snapshot.Kubelet.Version == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, action := range decision.Actions {
		state := s.stateOf(snapshot.Pod)
		state.trial = plan.NewPhaseTrial(state.trial, action, snapshot.Kubelet, s.clock.Now())
	}
}

// kubeletLearned reports that kubelets of a version ignore phases, or no longer do.
func (r *reporter) kubeletLearned(snapshot plan.Snapshot, key types.NamespacedName, state *podState, ignores bool) {
	log := r.logOf(key, state).WithValues("node", snapshot.Pod.Spec.NodeName, "kubeletVersion", snapshot.Kubelet.Version)
	if !ignores {
		log.Info("The kubelet has acted on a written phase; modes that write the phase are used again on nodes of this version")
		return
	}
	log.Info("The kubelet has ignored a written phase; modes that write the phase come last on nodes of this version", "retryAfter", phaseRetryInterval)
	r.event(snapshot.Pod, corev1.EventTypeWarning, v1alpha1.ReasonPhaseIgnoredByKubelet, fmt.Sprintf(
		"the kubelet of node %s ignored the phase that the operator wrote; on nodes with kubelet %s, modes that write the phase now come after Image, "+
			"and one pod in %s tries the phase again; set a quick-exit image that has the sidecars' commands, or install OpenKruise",
		snapshot.Pod.Spec.NodeName, snapshot.Kubelet.Version, phaseRetryInterval), state.first())
}
