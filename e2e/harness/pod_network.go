//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pods of the local cluster have loopback addresses, which are not reachable from other network namespaces. A PodNetwork gives
// each pod an additional link-local address.
const (
	podBridge        = "sidecar-br0"
	podNetworkPrefix = "169.254.200.0/24"
	podInterface     = "eth0"
)

// LabelNetworkCut marks pods that lose their network when their phase is terminal.
const LabelNetworkCut = "e2e.sidecartermination.dev/network-cut"

// PodNetwork connects the pods of a test to a receiver on this machine. Like some network plugins, it watches the API and
// disconnects pods with a terminal phase. Only one test at a time can use it.
type PodNetwork struct {
	test     *Test
	listener net.Listener
	receiver netip.Addr
	next     netip.Addr

	mutex    sync.Mutex
	received []string
	attached map[types.UID]bool
	cut      map[types.UID]bool
}

// StartPodNetwork starts the network and its receiver until the test ends. It connects pods when a container runs.
func (t *Test) StartPodNetwork() *PodNetwork {
	t.Helper()
	receiver := netip.MustParsePrefix(podNetworkPrefix).Addr().Next()
	// The address does not exist yet: the bridge is created for the first pod.
	config := net.ListenConfig{Control: func(_, _ string, connection syscall.RawConn) error {
		var failed error
		err := connection.Control(func(descriptor uintptr) {
			failed = syscall.SetsockoptInt(int(descriptor), syscall.SOL_IP, syscall.IP_FREEBIND, 1)
		})
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(t.Context(), "tcp", netip.AddrPortFrom(receiver, 0).String())
	if err != nil {
		t.Fatalf("Listen for pods: %v", err)
	}
	network := &PodNetwork{
		test: t, listener: listener, receiver: receiver, next: receiver, attached: map[types.UID]bool{}, cut: map[types.UID]bool{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { network.receive() })
	running.Go(func() { network.follow(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
		if output, err := exec.Command("ip", "address", "delete", network.onBridge(), "dev", podBridge).CombinedOutput(); err != nil && network.next != receiver {
			t.Errorf("Remove the address of the receiver: %v: %s", err, output)
		}
	})
	return network
}

// Send returns a shell command that sends one line to the receiver.
func (n *PodNetwork) Send(line string) string {
	_, port, _ := net.SplitHostPort(n.listener.Addr().String())
	return fmt.Sprintf("echo %s | nc -w 2 %s %s", line, n.receiver, port)
}

// Received reports whether the receiver has received the line.
func (n *PodNetwork) Received(line string) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Contains(n.received, line)
}

// IsCut reports whether the pod has lost its network.
func (n *PodNetwork) IsCut(pod *corev1.Pod) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.cut[pod.UID]
}

func (n *PodNetwork) onBridge() string {
	return netip.PrefixFrom(n.receiver, netip.MustParsePrefix(podNetworkPrefix).Bits()).String()
}

func (n *PodNetwork) receive() {
	for {
		connection, err := n.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = connection.Close() }()
			for lines := bufio.NewScanner(connection); lines.Scan(); {
				n.mutex.Lock()
				n.received = append(n.received, lines.Text())
				n.mutex.Unlock()
			}
		}()
	}
}

// follow connects and disconnects pods as their status changes.
func (n *PodNetwork) follow(ctx context.Context) {
	for ctx.Err() == nil {
		watcher, err := n.test.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(n.test.Namespace))
		if err != nil {
			if ctx.Err() == nil {
				n.test.Errorf("Watch the pods: %v", err)
			}
			return
		}
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted {
				n.observe(ctx, pod)
			}
		}
	}
}

func (n *PodNetwork) observe(ctx context.Context, pod *corev1.Pod) {
	n.mutex.Lock()
	attached, cut := n.attached[pod.UID], n.cut[pod.UID]
	n.mutex.Unlock()
	runs := slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(status corev1.ContainerStatus) bool { return status.State.Running != nil })
	switch {
	case !attached && runs && !isTerminal(pod.Status.Phase):
		n.next = n.next.Next()
		address := netip.PrefixFrom(n.next, netip.MustParsePrefix(podNetworkPrefix).Bits()).String()
		if err := run(ctx, "ip", "address", "replace", n.onBridge(), "dev", podBridge); err != nil {
			n.failed(ctx, err)
			return
		}
		n.change(ctx, pod, n.attached, "ip", "address", "add", address, "dev", podInterface)
	case attached && !cut && isTerminal(pod.Status.Phase) && pod.Labels[LabelNetworkCut] != "":
		n.change(ctx, pod, n.cut, "ip", "link", "set", podInterface, "down")
	}
}

// change runs the command in the pod's network namespace and marks the pod as done. It does nothing if the pod has no process. A
// process that ends meanwhile is replaced by another one of the pod.
func (n *PodNetwork) change(ctx context.Context, pod *corev1.Pod, done map[types.UID]bool, command ...string) {
	for process := range processes(pod) {
		err := run(ctx, append([]string{"nsenter", "--net=" + filepath.Join(process, "ns", "net")}, command...)...)
		if err == nil {
			n.mutex.Lock()
			defer n.mutex.Unlock()
			done[pod.UID] = true
			return
		}
		if _, gone := os.Stat(filepath.Join(process, "ns", "net")); gone == nil {
			n.failed(ctx, fmt.Errorf("change the network of pod %s: %w", pod.Name, err))
			return
		}
	}
}

func (n *PodNetwork) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		n.test.Error(err)
	}
}

func run(ctx context.Context, command ...string) error {
	if output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, output)
	}
	return nil
}

// processes are the directories in /proc of the pod's processes.
func processes(pod *corev1.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
		for _, file := range groups {
			content, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(content), "/pod"+string(pod.UID)+"/") && !yield(filepath.Dir(file)) {
				return
			}
		}
	}
}
