//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"sync"
	"testing"
)

// namespacesInUse limits how many parallel tests have a namespace, to limit the load of the node.
const namespacesInUse = 12

var (
	shared    sync.WaitGroup
	exclusive sync.Mutex
	slots     = make(chan struct{}, namespacesInUse)
)

// Shared marks a top-level test that runs in parallel with other tests.
func Shared(t *testing.T) {
	t.Helper()
	shared.Add(1)
	t.Cleanup(shared.Done)
	t.Parallel()
}

// Exclusive marks a top-level test that affects the whole cluster. It runs alone, after all shared tests.
//
// The testing package runs each test up to its call of t.Parallel before it resumes any. All shared tests are therefore counted
// before the wait below starts.
func Exclusive(t *testing.T) {
	t.Helper()
	t.Parallel()
	shared.Wait()
	exclusive.Lock()
	t.Cleanup(exclusive.Unlock)
}

// takeSlot waits until the test may have a namespace.
func takeSlot(t *testing.T) {
	t.Helper()
	select {
	case slots <- struct{}{}:
	case <-t.Context().Done():
		t.Fatal("The test ended before it got a namespace")
	}
	t.Cleanup(func() { <-slots })
}
