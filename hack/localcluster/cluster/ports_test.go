// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

func TestCheckPortsNamesPortAndComponent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	component := components.Component{Name: "etcd", Listens: []string{address}}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	err = checkPorts(component)
	if want := "port " + port + ", which etcd needs, is taken by another process"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %q", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Error("the message has more than one line")
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkPorts(component); err != nil {
		t.Errorf("a free port is refused: %v", err)
	}
}

func TestCheckPortsTakesMissingAddressesForFree(t *testing.T) {
	if err := checkPorts(components.Component{Name: "kubelet", Listens: []string{"203.0.113.77:21250"}}); err != nil {
		t.Errorf("an address that the machine does not have yet is refused: %v", err)
	}
}
