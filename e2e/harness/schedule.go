//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"sync"
	"testing"
)

// namespacesInUse is how many parallel tests may have a namespace, so that a small node is not overrun.
const namespacesInUse = 16

var (
	shared, exclusives sync.WaitGroup
	exclusive          sync.Mutex
	slots              = make(chan struct{}, namespacesInUse)
)

// Shared marks a top-level test that disturbs nobody. It runs beside other tests.
func Shared(t *testing.T) {
	t.Helper()
	shared.Add(1)
	t.Cleanup(shared.Done)
	t.Parallel()
}

// Exclusive marks a top-level test that disturbs the whole cluster. It runs alone, after every shared test.
//
// The testing package runs each test up to its call of t.Parallel before it resumes any, so that all shared tests are
// counted by the time that the wait below begins.
func Exclusive(t *testing.T) {
	t.Helper()
	exclusives.Add(1)
	t.Cleanup(exclusives.Done)
	t.Parallel()
	alone(t)
}

// Last marks a top-level test that may leave damage behind. It runs alone, after every other test.
func Last(t *testing.T) {
	t.Helper()
	t.Parallel()
	exclusives.Wait()
	alone(t)
}

func alone(t *testing.T) {
	t.Helper()
	shared.Wait()
	exclusive.Lock()
	t.Cleanup(exclusive.Unlock)
}

// takeSlot waits until a namespace may be taken into use.
func takeSlot(t *testing.T) {
	t.Helper()
	select {
	case slots <- struct{}{}:
	case <-t.Context().Done():
		t.Fatal("The tests ended before this one could begin.")
	}
	t.Cleanup(func() { <-slots })
}
