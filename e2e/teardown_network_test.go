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
	// batchOfDrained is how many seconds a shipper collects lines before it sends them, where longDrain leaves it the time.
	batchOfDrained, longDrain = 5, 20
	// batchOfOthers has them send upon SIGTERM alone, however late that is on a busy node.
	batchOfOthers = 3600
)

// shipping is a teardown and what becomes of the last line of the main container.
type shipping struct {
	teardown
	// cut says that the network is cut off when the pod's phase is terminal.
	cut bool
}

// shipped is when the shipper has sent the line.
type shipped string

const (
	shippedBefore shipped = "sent before SIGTERM"
	shippedAfter  shipped = "sent after SIGTERM"
	notShipped    shipped = "**lost**"
)

// expect returns what the pod's phase makes of it.
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

// drained leaves the sidecar alone for long enough. With lastResort Auto prefers mode Image, for which there is an image.
var (
	drained = teardown{
		name: "Auto, `drainSeconds: 20`", mode: v1alpha1.ModeAuto, exitCodes: v1alpha1.ExitCodesIgnore, drain: longDrain, phaseFirst: true,
	}
	lastResort = teardown{name: "Auto, `--pod-phase=LastResort`", mode: v1alpha1.ModeAuto, exitCodes: v1alpha1.ExitCodesIgnore}
)

// Where a network plugin takes the network away from a pod whose phase is terminal, a shipper that sends its last lines upon
// SIGTERM loses them in every mode that writes the phase first.
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
			test.RequireMarkedSection("docs/teardown.md", "network", networkTable(append(last, all...), append(lastResults, results...)))
		}
	})
}

// runShippings ends shippers in every way, with the network left alone and cut off, and returns what became of their lines.
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

// networkTable has a row for every two shippings that differ in the network alone.
func networkTable(all []shipping, results []shipped) string {
	var out strings.Builder
	out.WriteString("| mode | pod's phase while the sidecar ends | network left alone | network cut off when the phase is terminal |\n|---|---|---|---|\n")
	for i := 0; i < len(all); i += 2 {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", all[i].name, all[i].phase(), results[i], results[i+1])
	}
	return out.String()
}

func runShipping(test *harness.Test, network *harness.PodNetwork, s shipping) shipped {
	test.Helper()
	name := strings.ReplaceAll(fmt.Sprintf("%s-%t", s.label(), s.cut), ".", "-")
	job := s.job(name, shipper(network, name, s.batch()), logger(), logVolume())
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(10))
	if s.cut {
		job.Spec.Template.Labels[harness.LabelNetworkCut] = "true"
	}
	test.Create(job)
	test.WaitForComplete(name)
	record := test.RequireFinished(name)
	if !network.Received(name + "-begins") {
		test.Fatalf("The shipper of pod %s never had a network", record.Pod.Name)
	}
	if s.cut && s.phaseFirst && !network.IsCut(record.Pod) {
		test.Errorf("The network of pod %s was to be cut off", record.Pod.Name)
	}
	got := notShipped
	switch {
	case network.Received(name + "-before"):
		got = shippedBefore
	case network.Received(name + "-after"):
		got = shippedAfter
	}
	if wanted := s.expect(); got != wanted {
		test.Errorf("The last line was to be %s and was %s", wanted, got)
	}
	return got
}

// logVolume holds the line that the main container writes, and tells it when its shipper is ready.
func logVolume() corev1.Volume {
	return corev1.Volume{Name: "logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func withLogs(container corev1.Container) corev1.Container {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "logs", MountPath: "/logs"})
	return container
}

// logger returns a main container that writes its line and ends.
func logger() corev1.Container {
	return withLogs(harness.Container(harness.MainName, "until [ -e /logs/ready ]; do sleep 0.2; done; echo > /logs/line"))
}

// shipper returns a sidecar that sends what the main container has written when that is batch seconds old, or three seconds
// after SIGTERM.
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
