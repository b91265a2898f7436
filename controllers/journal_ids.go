// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"hash/maphash"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// idSeed makes the ids of one process. What is remembered by its id takes the same room however much whoever writes
// policies or pods makes of it.
var idSeed = maphash.MakeSeed()

// warningID tells the warnings of a pod apart. One about policies is the same whichever they are.
func warningID(warning resolve.Warning) uint64 {
	type told struct {
		container string
		reason    v1alpha1.Reason
		message   string
	}
	if warning.Policy != nil {
		return maphash.Comparable(idSeed, told{container: warning.Container, reason: warning.Reason})
	}
	return maphash.Comparable(idSeed, told{warning.Container, warning.Reason, warning.Message})
}

// lossesID tells lists of losses apart; that of none is zero.
func lossesID(losses []resolve.Loss) uint64 {
	if len(losses) == 0 {
		return 0
	}
	hash := newHash()
	for _, loss := range losses {
		maphash.WriteComparable(hash, loss)
	}
	return hash.Sum64()
}

// id is the same for equal claims.
func (c *claims) id() uint64 {
	hash := newHash()
	for _, list := range [][]resolve.PolicyRef{c.policies, c.governing} {
		maphash.WriteComparable(hash, len(list))
		for _, policy := range list {
			maphash.WriteComparable(hash, policy)
		}
	}
	maphash.WriteComparable(hash, len(c.sidecars))
	for _, sidecar := range c.sidecars {
		maphash.WriteComparable(hash, sidecar)
	}
	maphash.WriteComparable(hash, c.losses)
	return hash.Sum64()
}

func newHash() *maphash.Hash {
	hash := &maphash.Hash{}
	hash.SetSeed(idSeed)
	return hash
}
