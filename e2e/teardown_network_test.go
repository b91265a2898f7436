//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// batchOfDrained is how many seconds a shipper collects lines before it sends them, within longDrain.
	batchOfDrained, longDrain = 5, 20
	// batchOfOthers makes shippers send only after SIGTERM.
	batchOfOthers = 3600
)

// shipping is a teardown of a shipper, with or without a network at the end.
type shipping struct {
	teardown
	// cut says that the pod loses its network when its phase is terminal.
	cut bool
}

// shipped is when the shipper sent the main container's last line.
type shipped string

const (
	shippedBefore shipped = "sent before SIGTERM"
	shippedAfter  shipped = "sent after SIGTERM"
	notShipped    shipped = "**lost**"
)

// expect returns the expected result.
func (s shipping) expect() shipped {
	switch {
	case s.drain == longDrain:
		return shippedBefore
	case s.cut && s.phaseFirst:
		return notShipped
	default:
		return shippedAfter
	}
}

func (s shipping) batch() int {
	if s.drain == longDrain {
		return batchOfDrained
	}
	return batchOfOthers
}

// drained gives the shipper enough time. With lastResort, Auto prefers Image to PodPhase.
var (
	drained = teardown{
		name: "Auto, `drainSeconds: 20`", mode: v1alpha1.ModeAuto, exitCodes: v1alpha1.ExitCodesIgnore, drain: longDrain, phaseFirst: true,
	}
	lastResort = teardown{name: "Auto, `--pod-phase=LastResort`", mode: v1alpha1.ModeAuto, exitCodes: v1alpha1.ExitCodesIgnore}
)

// If a network plugin disconnects pods with a terminal phase, a shipper that sends its last lines after SIGTERM loses them in every
// mode that writes the phase first.
func TestTeardownNetwork(t *testing.T) {
	if !allFaults() {
		harness.Shared(t)
		runShippings(harness.New(t), append([]teardown{drained}, teardowns...))
		return
	}
	harness.Exclusive(t)
	var all, last []shipping
	var results, lastResults []shipped
	t.Run("last resort", func(t *testing.T) {
		test := harness.New(t)
		test.StandInForOperator()
		operator := test.NewOperatorProcess(test.BuildOperator(), "--leader-elect=false", "--pod-phase=LastResort")
		operator.Start()
		operator.WaitForReady()
		last, lastResults = runShippings(test, []teardown{lastResort})
	})
	t.Run("default", func(t *testing.T) {
		test := harness.New(t)
		all, results = runShippings(test, append([]teardown{drained}, teardowns...))
		if !t.Failed() && len(last) > 0 {
			test.RequireSection("docs/teardown.md", "network", networkTable(append(last, all...), append(lastResults, results...)))
		}
	})
}

// runShippings runs all teardowns with and without a network at the end, and returns their results.
func runShippings(test *harness.Test, ways []teardown) ([]shipping, []shipped) {
	test.Helper()
	network := test.StartPodNetwork()
	createTeardownPolicies(test, ways)
	var all []shipping
	for _, d := range ways {
		all = append(all, shipping{d, false}, shipping{d, true})
	}
	results := make([]shipped, len(all))
	test.Run("ways", func(t *testing.T) {
		for i, s := range all {
			t.Run(fmt.Sprintf("%s/cut %t", s.label(), s.cut), func(t *testing.T) {
				t.Parallel()
				results[i] = runShipping(harness.Within(t, test), network, s)
			})
		}
	})
	return all, results
}

// networkTable has a row for each teardown.
func networkTable(all []shipping, results []shipped) string {
	var out strings.Builder
	out.WriteString("| mode | pod's phase while the sidecar terminates | network stays | network cut when the phase is terminal |\n|---|---|---|---|\n")
	for i := 0; i < len(all); i += 2 {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", all[i].name, all[i].phase(), results[i], results[i+1])
	}
	return out.String()
}

func runShipping(test *harness.Test, network *harness.PodNetwork, s shipping) shipped {
	test.Helper()
	name := strings.ReplaceAll(fmt.Sprintf("%s-%t", s.label(), s.cut), ".", "-")
	job := s.job(name, shipper(network, name, s.batch()), logger())
	job.Spec.Template.Spec.Volumes = []corev1.Volume{logVolume()}
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(10))
	if s.cut {
		job.Spec.Template.Labels[harness.LabelNetworkCut] = "true"
	}
	test.Create(job)
	test.WaitForComplete(name)
	record := test.RequireFinished(name)
	if !network.Received(name + "-begins") {
		test.Fatalf("The shipper of pod %s had no network", record.Pod.Name)
	}
	if s.cut && s.phaseFirst && !network.IsCut(record.Pod) {
		test.Errorf("Pod %s has not lost its network", record.Pod.Name)
	}
	got := notShipped
	switch {
	case network.Received(name + "-before"):
		got = shippedBefore
	case network.Received(name + "-after"):
		got = shippedAfter
	}
	if wanted := s.expect(); got != wanted {
		test.Errorf("The last line was %s, want %s", got, wanted)
	}
	return got
}

// logVolume contains the main container's line and a file that says that the shipper is ready.
func logVolume() corev1.Volume {
	return corev1.Volume{Name: "logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func withLogs(container corev1.Container) corev1.Container {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "logs", MountPath: "/logs"})
	return container
}

// logger returns a main container that writes its line and exits.
func logger() corev1.Container {
	return withLogs(harness.Container(harness.MainName, "until [ -e /logs/ready ]; do sleep 0.2; done; echo > /logs/line"))
}

// shipper returns a sidecar that sends the main container's line after batch seconds, or three seconds after SIGTERM.
func shipper(network *harness.PodNetwork, name string, batch int) corev1.Container {
	return withLogs(harness.Sidecar(fmt.Sprintf(`
until %s; do sleep 0.2; done
trap 'sleep 3; %s; exit 0' TERM
echo > /logs/ready
until [ -e /logs/line ]; do sleep 0.2 & wait $!; done
sleep %d & wait $!
%s
sleep 3600 & wait`, network.Send(name+"-begins"), network.Send(name+"-after"), batch, network.Send(name+"-before"))))
}
