//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/internal/settings"
)

// OperatorWrites returns the operator's writes to pods of the test's namespace, by pod. It reads the API server's audit log.
func (t *Test) OperatorWrites() map[string][]string {
	t.Helper()
	cluster, err := layout.New(t.Repository)
	if err != nil {
		t.Fatal(err)
	}
	// Rotated logs have the time in their names.
	files, err := filepath.Glob(strings.TrimSuffix(cluster.AuditLog(), ".log") + "*.log")
	if err != nil || len(files) == 0 {
		t.Fatalf("There is no audit log %s: bring up the cluster again, with `make cluster-down cluster-up`", cluster.AuditLog())
	}
	writes := map[string][]string{}
	for _, file := range files {
		t.readWrites(file, writes)
	}
	return writes
}

// readWrites adds the operator's writes of one log.
func (t *Test) readWrites(file string, writes map[string][]string) {
	t.Helper()
	const operator = "system:serviceaccount:" + OperatorNamespace + ":" + settings.DeploymentName
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("Read the audit log: %v", err)
	}
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(t.Namespace)) {
			continue
		}
		event := auditv1.Event{}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("Read the audit log %s: %v: %s", file, err, line)
		}
		if object := event.ObjectRef; object != nil && object.Namespace == t.Namespace && event.User.Username == operator {
			writes[object.Name] = append(writes[object.Name], event.Verb+" "+strings.Trim(object.Resource+"/"+object.Subresource, "/"))
		}
	}
}
