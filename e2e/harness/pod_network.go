//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

// The pods of the local cluster have addresses of the loopback range, which no packet leaves a network namespace with. A
// PodNetwork gives each pod a link-local one more.
const (
	podBridge        = "sidecar-br0"
	podNetworkPrefix = "169.254.200.0/24"
	podInterface     = "eth0"
)

// LabelNetworkCut is on the pods that lose their network when their phase is terminal.
const LabelNetworkCut = "e2e.sidecartermination.dev/network-cut"

// PodNetwork connects the pods of a test with a receiver on this machine. It is what some network plugins are: it watches
// the API and takes the network away from a pod whose phase is terminal, whatever runs in it. One test at a time can have it.
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

// StartPodNetwork starts the network and its receiver, which end with the test. Pods are connected once a container runs.
func (t *Test) StartPodNetwork() *PodNetwork {
	t.Helper()
	receiver := netip.MustParsePrefix(podNetworkPrefix).Addr().Next()
	// The address is there once there is a pod, for the bridge is made for the first one.
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

// Send returns the words of a shell script that send one line to the receiver, and fail where that cannot be done.
func (n *PodNetwork) Send(line string) string {
	_, port, _ := net.SplitHostPort(n.listener.Addr().String())
	return fmt.Sprintf("echo %s | nc -w 2 %s %s", line, n.receiver, port)
}

// Received reports whether the receiver has got the line.
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

// follow connects and cuts off pods as their status changes.
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
		n.change(ctx, pod, n.attached, []string{"ip", "address", "replace", n.onBridge(), "dev", podBridge},
			inPod(pod, "ip", "address", "add", address, "dev", podInterface))
	case attached && !cut && isTerminal(pod.Status.Phase) && pod.Labels[LabelNetworkCut] != "":
		n.change(ctx, pod, n.cut, inPod(pod, "ip", "link", "set", podInterface, "down"))
	}
}

// change runs commands and notes that it was done for the pod. A pod whose processes are gone needs no network.
func (n *PodNetwork) change(ctx context.Context, pod *corev1.Pod, done map[types.UID]bool, commands ...[]string) {
	for _, command := range commands {
		if command == nil {
			return
		}
		if output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			if ctx.Err() == nil {
				n.test.Errorf("Change the network of pod %s: %s: %v: %s", pod.Name, strings.Join(command, " "), err, output)
			}
			return
		}
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	done[pod.UID] = true
}

// inPod returns the command that runs another one in the pod's network namespace, or nil when no process of the pod is left.
func inPod(pod *corev1.Pod, command ...string) []string {
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range groups {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), "/pod"+string(pod.UID)+"/") {
			return append([]string{"nsenter", "--net=" + filepath.Join(filepath.Dir(file), "ns", "net")}, command...)
		}
	}
	return nil
}
