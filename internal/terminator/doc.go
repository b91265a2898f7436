// SPDX-License-Identifier: Apache-2.0

// Package terminator holds what the terminators share. Its subpackages are the only code that writes to pods or to
// ContainerRecreateRequests, one mechanism each: crr, image and podphase. They carry out what internal/plan has decided
// and report past attempts; they decide nothing.
package terminator
