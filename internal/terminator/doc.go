// SPDX-License-Identifier: Apache-2.0

// Package terminator holds what the terminators share: patches of pods, and annotations that record attempts. Its
// subpackages crr, image and podphase are the only code that writes pods or ContainerRecreateRequests, one mechanism
// each. They carry out the decisions of package plan and read past attempts.
package terminator
