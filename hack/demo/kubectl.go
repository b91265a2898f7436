// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// kubectl is the command that people are shown.
type kubectl struct {
	path       string
	kubeconfig string
}

// findKubectl prefers the command of the local cluster, which has the cluster's version.
func findKubectl(kubeconfig string) kubectl {
	local := filepath.Join(".cluster", "bin", "kubectl")
	if _, err := os.Stat(local); err == nil {
		return kubectl{path: local, kubeconfig: kubeconfig}
	}
	return kubectl{path: "kubectl", kubeconfig: kubeconfig}
}

// showPolicies prints the policies of the demonstration as people see them.
func (k kubectl) showPolicies(ctx context.Context) error {
	fmt.Printf("\n$ kubectl get stp -n %s\n", namespace)
	command := exec.CommandContext(ctx, k.path, "get", "stp", "-n", namespace)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("run %s: %w", k.path, err)
	}
	return nil
}

// showNextSteps prints commands that may be pasted as they are.
func (k kubectl) showNextSteps() {
	inNamespace := k.path + " -n " + namespace
	fmt.Printf(`
Try next:
  export KUBECONFIG=%s
  # see what became of the pods, and what the operator said
  %s get jobs,pods
  %s get events --field-selector involvedObject.kind=Pod
  # let the policy select every pod of the namespace: the other Job becomes Complete as well
  %s patch stp %s --type merge -p '{"spec":{"podSelector":{"matchLabels":null}}}'
  %s get jobs --watch
`, k.kubeconfig, inNamespace, inNamespace, inNamespace, policyName, inNamespace)
}
