// SPDX-License-Identifier: Apache-2.0

// Package config holds the manifests of the installation. The kubectl plugin compares clusters with the operator's roles.
package config

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The files with the operator's roles.
const (
	ManagerRoles           = "rbac/role.yaml"
	LeaderElectionRole     = "rbac/leader_election_role.yaml"
	NamespacedManagerRoles = "rbac-namespaced/role.yaml"
)

//go:embed rbac/role.yaml rbac/leader_election_role.yaml rbac-namespaced/role.yaml
var roles embed.FS

// ReadRoles returns the roles in a file. Roles and ClusterRoles have the same rules.
func ReadRoles(file string) ([]rbacv1.ClusterRole, error) {
	content, err := roles.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []rbacv1.ClusterRole
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	for {
		var role rbacv1.ClusterRole
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		all = append(all, role)
	}
}
