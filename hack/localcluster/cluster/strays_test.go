// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

func TestIsStray(t *testing.T) {
	local := &Cluster{layout: layout.Layout{Repository: "/repository", Root: "/repository/.cluster"}}
	known := []components.Component{{Name: "etcd", Path: "/cache/etcd"}}
	for name, test := range map[string]struct {
		arguments []string
		want      bool
	}{
		"a component here":                 {[]string{"/cache/etcd", "--data-dir=/repository/.cluster/etcd"}, true},
		"built from another cache":         {[]string{"/other/etcd", "--data-dir=/repository/.cluster/etcd"}, true},
		"another cluster's":                {[]string{"/cache/etcd", "--data-dir=/other/.cluster/etcd"}, false},
		"a directory that starts the same": {[]string{"/cache/etcd", "--data-dir=/repository/.cluster-2/etcd"}, false},
		"another program":                  {[]string{"/usr/bin/tail", "--follow=/repository/.cluster/logs/etcd.log"}, false},
		"a kernel thread":                  {[]string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := local.isStray(test.arguments, known); got != test.want {
				t.Errorf("%v are a stray's: %t, want %t", test.arguments, got, test.want)
			}
		})
	}
}
