//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	flushMount = "/flush"
	// flushInterval is the time between two lines of a flush.
	flushInterval = time.Second
	tokenSuffix   = ".token"
)

// Flushes is a host directory in which sidecars log what they do after SIGTERM. A test can read a flush after the pod is gone.
type Flushes struct {
	test      *Test
	directory string
}

// Flush is what one sidecar has logged.
type Flush struct {
	// Terminated is when the sidecar received SIGTERM, as time since boot. It is 0 before that.
	Terminated time.Duration
	// Last is the time from SIGTERM to the last line.
	Last time.Duration
	// Complete is true if the sidecar finished its flush.
	Complete bool
}

// Flushes returns an empty directory. The pods must run on a node with a kubelet.
func (t *Test) Flushes() *Flushes {
	t.Helper()
	return &Flushes{t, t.TempDir()}
}

// Container returns a container that flushes for the duration after SIGTERM and exits 0. It logs to the file name, and copies
// its ServiceAccount token if it has one.
func (f *Flushes) Container(container, name string, duration time.Duration) corev1.Container {
	script := fmt.Sprintf(`
cp /var/run/secrets/kubernetes.io/serviceaccount/token %[1]s%[2]s
line() { echo "$1 $(cut -d' ' -f1 /proc/uptime)" >> %[1]s; echo "$1"; }
flush() {
	line term
	i=0
	while [ $i -lt %[3]d ]; do sleep %[4]v; i=$((i + 1)); line $i; done
	line end
	exit 0
}
trap flush TERM
sleep 3600 & wait`, filepath.Join(flushMount, name), tokenSuffix, duration/flushInterval, flushInterval.Seconds())
	return Container(container, script)
}

// Mount mounts the directory into the container that Container returned.
func (f *Flushes) Mount(pod *corev1.PodSpec, container string) {
	MountHostDirectory(pod, container, f.directory, flushMount)
}

// Token returns the ServiceAccount token that the sidecar copied.
func (f *Flushes) Token(name string) string {
	f.test.Helper()
	token, err := os.ReadFile(filepath.Join(f.directory, name+tokenSuffix))
	if err != nil {
		f.test.Fatalf("Read the token of sidecar %s: %v", name, err)
	}
	return string(token)
}

// Read returns what the sidecar has logged to the file name so far.
func (f *Flushes) Read(name string) Flush {
	f.test.Helper()
	content, err := os.ReadFile(filepath.Join(f.directory, name))
	if err != nil && !os.IsNotExist(err) {
		f.test.Fatalf("Read the log of sidecar %s: %v", name, err)
	}
	var flush Flush
	for line := range strings.Lines(string(content)) {
		word, uptime, found := strings.Cut(strings.TrimSpace(line), " ")
		seconds, err := strconv.ParseFloat(uptime, 64)
		if !found || err != nil {
			continue // a partially written line
		}
		at := time.Duration(seconds * float64(time.Second))
		if word == "term" {
			flush.Terminated = at
		}
		flush.Last, flush.Complete = at-flush.Terminated, word == "end"
	}
	return flush
}

// Uptime returns the time since boot, which flushes log as well.
func (t *Test) Uptime() time.Duration {
	t.Helper()
	content, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatalf("Read the uptime: %v", err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(content))[0], 64)
	if err != nil {
		t.Fatalf("Read the uptime: %v", err)
	}
	return time.Duration(seconds * float64(time.Second))
}
