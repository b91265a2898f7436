// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/internal/podmodel"
)

// object returns an object as the API server encodes it.
func object(t *testing.T, encoded string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(encoded), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

const pending = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"batch","uid":"1","annotations":{"x":"y"}},
	"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"main:v1","command":["sh"]}]},
	"status":{"phase":"Pending","containerStatuses":[{"name":"main","state":{"waiting":{"reason":"ContainerCreating","message":"long"}}}]}}`

const succeeded = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"batch","uid":"1",
	"managedFields":[{"manager":"kubelet","operation":"Update","subresource":"status","time":"2026-03-01T12:00:00Z","fieldsV1":{"f:status":{}}}]},
	"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"main:v1"}]},
	"status":{"phase":"Succeeded","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0}}}]}}`

// A recording is replayed as far as it was written, even if its process was killed.
func TestReplayReadsWhatWasWritten(t *testing.T) {
	for name, killed := range map[string]bool{"complete": false, "process killed": true} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			file, err := os.Create(filepath.Join(directory, "x"+Suffix))
			if err != nil {
				t.Fatal(err)
			}
			w := newWriter(file)
			w.write(podmodel.Event{Type: podmodel.Gap, Kind: "Pod"})
			w.write(eventOf("ADDED", "Pod", object(t, pending)))
			w.write(eventOf("MODIFIED", "Pod", object(t, succeeded)))
			if killed {
				err = w.zip.Flush()
			} else {
				err = w.close()
			}
			if err != nil {
				t.Fatal(err)
			}
			replay, err := Replay(directory)
			if err != nil {
				t.Fatal(err)
			}
			if replay.Transitions != 1 || replay.Gaps != 1 || len(replay.Divergences) > 0 || replay.Rules["all containers succeeded: Succeeded"] != 1 {
				t.Errorf("%+v", replay)
			}
		})
	}
}

func TestEventsAreTrimmed(t *testing.T) {
	event := eventOf("ADDED", "Pod", object(t, pending))
	pod := event.Pod
	if len(pod.Annotations) > 0 || pod.Spec.Containers[0].Command != nil || pod.Status.ContainerStatuses[0].State.Waiting.Message != "" {
		t.Errorf("%+v", pod)
	}
	if managers := eventOf("ADDED", "Pod", object(t, succeeded)).Managers; len(managers) != 1 || managers[0].Subresource != "status" || managers[0].Fields == 0 {
		t.Errorf("managers %+v", managers)
	}
}

func TestPhasesOfObjects(t *testing.T) {
	for want, encoded := range map[string]string{
		"":                   `{"status":{"conditions":[{"type":"Suspended","status":"True"}]}}`,
		"SuccessCriteriaMet": `{"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"False"}]}}`,
		"Complete":           `{"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`,
		"Recreating":         `{"status":{"phase":"Recreating"}}`,
	} {
		if got := eventOf("ADDED", "Job", object(t, encoded)).Object.Phase; got != want {
			t.Errorf("phase %q, want %q", got, want)
		}
	}
}

func TestVersionsOfKubelets(t *testing.T) {
	node := eventOf("ADDED", "Node", object(t, `{"metadata":{"name":"node-1"},"status":{"nodeInfo":{"kubeletVersion":"v1.34.10"}}}`)).Object
	if node.Name != "node-1" || node.KubeletVersion != "v1.34.10" {
		t.Errorf("%+v", node)
	}
}
