//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	// receivedFile in a host directory has what the shipper has sent. It sends after SIGTERM only once proceedFile is there, so
	// that the network is cut before, however busy the machine is.
	receivedMount, receivedFile, proceedFile = "/received", "lines", "proceed"
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

// drained gives the shipper enough time.
var drained = teardown{
	name: "PodPhase, `drainSeconds: 20`", mode: v1alpha1.ModePodPhase, exitCodes: v1alpha1.ExitCodesIgnore, drain: longDrain, phaseFirst: true,
}

// If a network plugin disconnects pods with a terminal phase, a shipper that sends its last lines after SIGTERM loses them in mode
// PodPhase.
func TestTeardownNetwork(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	all, results := runShippings(test, append([]teardown{drained}, teardowns...))
	if allFaults() && !t.Failed() {
		test.RequireSection("docs/teardown.md", "network", networkTable(all, results))
	}
}

// runShippings runs all teardowns with and without a network at the end, and returns their results.
func runShippings(test *harness.Test, ways []teardown) ([]shipping, []shipped) {
	test.Helper()
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
				results[i] = runShipping(harness.Within(t, test), s)
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

func runShipping(test *harness.Test, s shipping) shipped {
	test.Helper()
	name := strings.ReplaceAll(fmt.Sprintf("%s-%t", s.label(), s.cut), ".", "-")
	job := s.job(name, shipper(s.batch()), logger())
	job.Spec.Template.Spec.Volumes = []corev1.Volume{logVolume()}
	directory := test.TempDir()
	harness.MountHostDirectory(&job.Spec.Template.Spec, harness.SidecarName, directory, receivedMount)
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(60))
	proceed := func() {
		test.Helper()
		if err := os.WriteFile(filepath.Join(directory, proceedFile), nil, 0o600); err != nil {
			test.Fatalf("Let the shipper proceed: %v", err)
		}
	}
	if !s.cut || !s.phaseFirst {
		proceed()
	}
	test.Create(job)
	if s.cut && s.phaseFirst {
		test.EventuallySeen("the phase to be terminal", harness.FinishTimeout, func(seen harness.Seen) error {
			if pods := seen.Pods(name); len(pods) == 0 || !pods[0].Finished() {
				return errors.New(seen.Describe(name))
			}
			return nil
		})
		cutNetwork(test, test.PodOf(name))
		proceed()
	}
	test.WaitForComplete(name)
	test.RequireFinished(name)
	content, err := os.ReadFile(filepath.Join(directory, receivedFile))
	if err != nil || !strings.Contains(string(content), "begins") {
		test.Fatalf("The shipper had no network: %q, %v", content, err)
	}
	got := notShipped
	switch {
	case strings.Contains(string(content), "before"):
		got = shippedBefore
	case strings.Contains(string(content), "after"):
		got = shippedAfter
	}
	if wanted := s.expect(); got != wanted {
		test.Errorf("The last line was %s, want %s", got, wanted)
	}
	return got
}

// cutNetwork takes down the only network interface of the pod, whose sidecar runs.
func cutNetwork(test *harness.Test, pod *corev1.Pod) {
	test.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range groups {
		content, gone := os.ReadFile(file)
		if gone != nil || !strings.Contains(string(content), "/pod"+string(pod.UID)+"/") {
			continue
		}
		network := filepath.Join(filepath.Dir(file), "ns", "net")
		var output []byte
		if output, err = exec.CommandContext(test.Context(), "nsenter", "--net="+network, "ip", "link", "set", "lo", "down").CombinedOutput(); err == nil {
			return
		}
		err = fmt.Errorf("%w: %s", err, output) // the process may have ended
	}
	test.Errorf("Pod %s has not lost its network: %v", pod.Name, err)
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

// shipper returns a sidecar that sends the main container's line after batch seconds, or after SIGTERM. What it sends passes the
// pod's network interface and is received into a file. It sends again what was not received: nc takes one connection at a time.
func shipper(batch int) corev1.Container {
	return withLogs(harness.Sidecar(fmt.Sprintf(`
while :; do nc -l -p 9000 >> %[1]s/%[2]s; done &
send() {
	for try in 1 2 3 4 5 6 7 8 9 10; do
		echo $1 | nc -w 2 127.0.0.1 9000
		sleep 0.2
		grep -q $1 %[1]s/%[2]s && return
	done
}
send begins
trap 'until [ -e %[1]s/%[3]s ]; do sleep 0.2; done; send after; exit 0' TERM
echo > /logs/ready
until [ -e /logs/line ]; do sleep 0.2 & wait $!; done
sleep %[4]d & wait $!
send before
sleep 3600 & wait`, receivedMount, receivedFile, proceedFile, batch)))
}
