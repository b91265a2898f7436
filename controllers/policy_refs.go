// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"hash/maphash"
	"slices"
	"unique"

	"k8s.io/utils/lru"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// policyRefs are the policies of a pod, and what they declare. Pods share equal ones, which must not be changed.
type policyRefs struct {
	policies  []unique.Handle[resolve.PolicyRef] // all that select the pod
	declaring []unique.Handle[resolve.PolicyRef] // those that declare one of its sidecars, in order of precedence
	overrides uint64                             // overridesID: a pod may have as many overrides as policies
	sidecars  []string
}

// noPolicyRefs are those of a new podState.
var noPolicyRefs = &policyRefs{}

func newPolicyRefs(resolved resolvedPod) policyRefs {
	refs := policyRefs{overrides: overridesID(resolved.resolution.Overrides)}
	for _, policy := range resolved.Policies {
		refs.policies = append(refs.policies, unique.Make(policy.Ref))
	}
	for _, sidecar := range resolved.resolution.Enforced.Sidecars {
		refs.sidecars = append(refs.sidecars, sidecar.Container)
	}
	for _, policy := range resolved.resolution.Enforced.Policies {
		refs.declaring = append(refs.declaring, unique.Make(policy))
	}
	return refs
}

func (r *policyRefs) equal(other *policyRefs) bool {
	return slices.Equal(r.policies, other.policies) && slices.Equal(r.declaring, other.declaring) &&
		slices.Equal(r.sidecars, other.sidecars) && r.overrides == other.overrides
}

// first returns the first policy that declares one of the pod's sidecars, or nil.
func (r *policyRefs) first() *resolve.PolicyRef {
	if len(r.declaring) == 0 {
		return nil
	}
	policy := r.declaring[0].Value()
	return &policy
}

// sharedRefs keeps the most recent policyRefs, so that pods can share them.
type sharedRefs struct{ recent *lru.Cache }

func newSharedRefs() sharedRefs { return sharedRefs{lru.New(1024)} }

// share returns the policyRefs of another pod that are equal, or else the given ones.
func (s sharedRefs) share(refs *policyRefs) *policyRefs {
	if len(refs.policies) == 0 {
		return refs
	}
	id := refs.id()
	if known, ok := s.recent.Get(id); ok && known.(*policyRefs).equal(refs) {
		return known.(*policyRefs)
	}
	s.recent.Add(id, refs)
	return refs
}

// idSeed seeds the IDs of one process. IDs are hashed, so memory does not grow with user-supplied text.
var idSeed = maphash.MakeSeed()

func newHash() *maphash.Hash {
	hash := &maphash.Hash{}
	hash.SetSeed(idSeed)
	return hash
}

// id is the same for equal policyRefs.
func (r *policyRefs) id() uint64 {
	hash := newHash()
	writeAll(hash, r.policies)
	writeAll(hash, r.declaring)
	writeAll(hash, r.sidecars)
	maphash.WriteComparable(hash, r.overrides)
	return hash.Sum64()
}

// writeAll hashes a list and its length.
func writeAll[T comparable](hash *maphash.Hash, list []T) {
	maphash.WriteComparable(hash, len(list))
	for _, item := range list {
		maphash.WriteComparable(hash, item)
	}
}

// overridesID identifies a list of overrides. It is zero for none.
func overridesID(overrides []resolve.Override) uint64 {
	if len(overrides) == 0 {
		return 0
	}
	hash := newHash()
	writeAll(hash, overrides)
	return hash.Sum64()
}

// warningID identifies a warning of a pod. Warnings about policies share one ID per container and reason.
func warningID(warning resolve.Warning) uint64 {
	type identity struct {
		container string
		reason    v1alpha1.Reason
		message   string
	}
	if warning.Policy != nil {
		return maphash.Comparable(idSeed, identity{container: warning.Container, reason: warning.Reason})
	}
	return maphash.Comparable(idSeed, identity{warning.Container, warning.Reason, warning.Message})
}
