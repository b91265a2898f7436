// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sidecar-termination/operator/hack/podtest"
)

func TestTeardownEventsEndWithTeardown(t *testing.T) {
	type object = *corev1.Pod
	tearing, torn, back := podtest.New(podtest.MainDone, podtest.Succeeded), podtest.New(podtest.MainDone, podtest.SidecarDone, podtest.Succeeded), podtest.New(podtest.MainDone)
	passes := InTeardown()
	for name, tc := range map[string]struct{ got, want bool }{
		"the phase was just written":               {passes.Create(event.TypedCreateEvent[object]{Object: tearing}), true},
		"the phase was written, no container runs": {passes.Create(event.TypedCreateEvent[object]{Object: torn}), true},
		"teardown was over before the start":       {passes.Create(event.TypedCreateEvent[object]{Object: torn, IsInInitialList: true}), false},
		"in teardown at the start":                 {passes.Create(event.TypedCreateEvent[object]{Object: tearing, IsInInitialList: true}), true},
		"its phase was undone before the start":    {passes.Create(event.TypedCreateEvent[object]{Object: back, IsInInitialList: true}), true},
		"its sidecar ends":                         {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: tearing, ObjectNew: torn}), true},
		"its phase is undone":                      {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: torn, ObjectNew: back}), true},
		"it is touched after teardown":             {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: torn, ObjectNew: torn}), false},
		"it is deleted":                            {passes.Delete(event.TypedDeleteEvent[object]{Object: torn}), true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}
