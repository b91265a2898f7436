// SPDX-License-Identifier: Apache-2.0

// Package optionalkind follows custom resources of other projects, which may be installed, upgraded or removed while the
// operator runs. An absent kind is a state, not an error.
package optionalkind

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// IsEstablished reports whether the cluster serves the definition's kind and the definition is not being deleted.
func IsEstablished(definition apiextensionsv1.CustomResourceDefinition) bool {
	return definition.DeletionTimestamp == nil &&
		slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}
