// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"encoding/binary"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// keptFields are the fields that internal/podinput, internal/resolve, internal/plan and the terminators read, by their names in Go: identity, labels,
// scheduling and restart fields, container states, and what decides whether a quick-exit image covers a container.
var keptFields = []string{
	"ObjectMeta.Name", "ObjectMeta.Namespace", "ObjectMeta.UID", "ObjectMeta.ResourceVersion",
	"ObjectMeta.CreationTimestamp", "ObjectMeta.DeletionTimestamp", "ObjectMeta.Labels", "ObjectMeta.Annotations", "ObjectMeta.OwnerReferences",

	"Spec.NodeName", "Spec.RestartPolicy", "Spec.TerminationGracePeriodSeconds", "Spec.ActiveDeadlineSeconds", "Spec.ResourceClaims", "Spec.HostNetwork",
	"Spec.InitContainers.Name", "Spec.InitContainers.RestartPolicy", "Spec.InitContainers.RestartPolicyRules",
	"Spec.Containers.Name", "Spec.Containers.RestartPolicy", "Spec.Containers.RestartPolicyRules",
	"Spec.Containers.Image", "Spec.Containers.Command", "Spec.Containers.Env", "Spec.Containers.Ports.HostPort",
	"Spec.Containers.VolumeMounts.MountPath", "Spec.Containers.VolumeDevices.DevicePath",

	"Status.Phase", "Status.Reason", "Status.StartTime", "Status.Conditions",
	"Status.ContainerStatuses.Name", "Status.ContainerStatuses.ContainerID", "Status.ContainerStatuses.RestartCount",
	"Status.ContainerStatuses.State.Waiting.Reason", "Status.ContainerStatuses.State.Running",
	"Status.ContainerStatuses.State.Terminated.ExitCode",
	"Status.ContainerStatuses.State.Terminated.StartedAt", "Status.ContainerStatuses.State.Terminated.FinishedAt",
	"Status.ContainerStatuses.LastTerminationState.Terminated.FinishedAt", "Status.InitContainerStatuses.State.Running",
}

// keptEntries are the keys, names, types or kinds of the entries that are kept of some of these fields.
var keptEntries = map[string][]string{
	"ObjectMeta.Annotations": {
		v1alpha1.AnnotationSidecars, v1alpha1.AnnotationImageSwap, v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd,
		v1alpha1.AnnotationMainContainers, corev1.MirrorPodAnnotationKey, metav1.InitialEventsAnnotationKey,
	},
	"ObjectMeta.OwnerReferences": {"Job"},
	"Spec.Containers.Env":        {v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode, quickexit.PathVariable},
	"Status.Conditions":          {string(corev1.AllContainersRestarting), string(corev1.DisruptionTarget)},
}

// keptFirst are lists of which only the first item is kept: the rest of a command is often a long script.
var keptFirst = []string{"Spec.Containers.Command"}

// kept selects these fields of an encoded pod.
var kept = selectFields(keptFields)

// selection tells what is kept of a field.
type selection struct {
	// fields are the kept fields by number if the field is a message that is not kept whole.
	fields map[protowire.Number]*selection
	// entries are the kept values of field 1 if only some messages are kept.
	entries []string
	// first is whether only the first of several is kept.
	first bool
}

// selectFields returns the selection of a pod's fields.
func selectFields(paths []string) *selection {
	root := &selection{}
	for _, path := range paths {
		at := root
		for _, number := range numbersOf(path) {
			if at.fields == nil {
				at.fields = map[protowire.Number]*selection{}
			}
			if at.fields[number] == nil {
				at.fields[number] = &selection{}
			}
			at = at.fields[number]
		}
		at.entries, at.first = keptEntries[path], slices.Contains(keptFirst, path)
	}
	return root
}

// numbersOf returns the number of a pod's field in its encoding, after those of the fields that it is in. It panics if there is no such
// field.
func numbersOf(path string) []protowire.Number {
	var numbers []protowire.Number
	message := reflect.TypeFor[corev1.Pod]()
	for name := range strings.SplitSeq(path, ".") {
		field, _ := message.FieldByName(name)
		// The tag starts with a type and the number.
		_, tag, _ := strings.Cut(field.Tag.Get("protobuf"), ",")
		tag, _, _ = strings.Cut(tag, ",")
		number, err := strconv.Atoi(tag)
		if err != nil {
			panic(fmt.Errorf("find field %s of a pod: %w", path, err))
		}
		numbers = append(numbers, protowire.Number(number))
		for message = field.Type; message.Kind() == reflect.Pointer || message.Kind() == reflect.Slice; {
			message = message.Elem()
		}
	}
	return numbers
}

// appendKept appends what is kept of the message. Its time and memory are linear in the size of the message.
func (s *selection) appendKept(to, message []byte) ([]byte, error) {
	var previous protowire.Number
	for len(message) > 0 {
		field, err := nextField(message)
		if err != nil {
			return nil, err
		}
		message = message[len(field.encoded):]
		// The items of a list follow each other.
		repeated := field.number == previous
		previous = field.number
		of := s.fields[field.number]
		if of == nil || of.first && repeated || !of.keepsEntry(field.content) {
			continue
		}
		if of.fields == nil {
			to = append(to, field.encoded...)
			continue
		}
		to = protowire.AppendTag(to, field.number, protowire.BytesType)
		start := len(to)
		if to, err = of.appendKept(to, field.content); err != nil {
			return nil, err
		}
		var length [binary.MaxVarintLen64]byte
		to = slices.Insert(to, start, protowire.AppendVarint(length[:0], uint64(len(to)-start))...)
	}
	return to, nil
}

// keepsEntry reports whether the message is kept according to its field 1, which is the key of a map's entry, or a name or type.
func (s *selection) keepsEntry(message []byte) bool {
	if s.entries == nil {
		return true
	}
	name, _ := first(message, 1)
	return slices.ContainsFunc(s.entries, func(entry string) bool { return entry == string(name) })
}

// field is a field of an encoded message.
type field struct {
	number protowire.Number
	// encoded is the whole field, and content its value if that is a text or a message.
	encoded, content []byte
}

// nextField returns the first field of the message.
func nextField(message []byte) (field, error) {
	number, kind, size := protowire.ConsumeTag(message)
	if size < 0 {
		return field{}, protowire.ParseError(size)
	}
	var content []byte
	var length int
	if kind == protowire.BytesType {
		content, length = protowire.ConsumeBytes(message[size:])
	} else {
		length = protowire.ConsumeFieldValue(number, kind, message[size:])
	}
	if length < 0 {
		return field{}, protowire.ParseError(length)
	}
	return field{number, message[:size+length], content}, nil
}

// first returns the content of the first field with the numbers, and whether there is one.
func first(message []byte, numbers ...protowire.Number) (content []byte, found bool) {
	for content := range each(message, numbers...) {
		return content, true
	}
	return nil, false
}

// each returns the contents of all fields with the numbers, up to a part that cannot be decoded.
func each(message []byte, numbers ...protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { visit(message, numbers, yield) }
}

// visit yields as each does, and returns false once yield has.
func visit(message []byte, numbers []protowire.Number, yield func([]byte) bool) bool {
	if len(numbers) == 0 {
		return yield(message)
	}
	for len(message) > 0 {
		field, err := nextField(message)
		if err != nil {
			return true
		}
		message = message[len(field.encoded):]
		if field.number == numbers[0] && !visit(field.content, numbers[1:], yield) {
			return false
		}
	}
	return true
}
