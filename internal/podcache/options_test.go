// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestCacheDropsManagedFields(t *testing.T) {
	options := ManagerOptions(runtime.NewScheme())
	object := &metav1.PartialObjectMetadata{}
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := options.DefaultTransform(object); err != nil || object.ManagedFields != nil {
		t.Errorf("kept %v, error %v", object.ManagedFields, err)
	}
	if !options.ReaderFailOnMissingInformer {
		t.Error("a read of an undeclared kind would start an informer")
	}
}
