// SPDX-License-Identifier: Apache-2.0

// Package terminator holds the interface of the modes and what they share: what came of a write, patches of pods, and annotations that
// record attempts. Its subpackages crr, image and podphase are the only code that writes pods or ContainerRecreateRequests, one mode each.
// They execute the writes of package plan and read past attempts. They decide nothing.
package terminator
