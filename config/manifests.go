// SPDX-License-Identifier: Apache-2.0

// Package config holds manifests of the installation, for those who check policies without a cluster and those who compare a cluster with
// them.
package config

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The files with the operator's roles.
const (
	ManagerRoles           = "rbac/role.yaml"
	LeaderElectionRole     = "rbac/leader_election_role.yaml"
	NamespacedManagerRoles = "rbac-namespaced/role.yaml"
)

//go:embed crd/bases/*.yaml rbac/role.yaml rbac/leader_election_role.yaml rbac-namespaced/role.yaml admission/*.yaml manager/deployment.yaml
var manifests embed.FS

// Definitions returns the CRDs, sorted by their names.
func Definitions() ([]apiextensionsv1.CustomResourceDefinition, error) {
	return decode[apiextensionsv1.CustomResourceDefinition]("crd/bases/*.yaml")
}

// Deployment returns the operator's Deployment.
func Deployment() (*appsv1.Deployment, error) {
	all, err := decode[appsv1.Deployment]("manager/deployment.yaml")
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// Roles returns the roles in a file. Roles and ClusterRoles have the same rules.
func Roles(file string) ([]rbacv1.ClusterRole, error) {
	return decode[rbacv1.ClusterRole](file)
}

// AdmissionPolicies returns all admission policies, and their bindings.
func AdmissionPolicies() ([]unstructured.Unstructured, error) {
	all, err := decode[unstructured.Unstructured]("admission/*.yaml")
	return slices.DeleteFunc(all, func(object unstructured.Unstructured) bool { return object.GetKind() == "Kustomization" }), err
}

// decode returns the objects of the files that the pattern matches.
func decode[T any](pattern string) ([]T, error) {
	// The patterns are valid.
	files, _ := fs.Glob(manifests, pattern)
	var all []T
	for _, file := range files {
		content, err := manifests.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
		for {
			var object T
			if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("decode %s: %w", file, err)
			}
			all = append(all, object)
		}
	}
	return all, nil
}
