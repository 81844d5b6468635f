package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// maxForeignText is the maximum length of the path, the manager or the value of a foreign field, in bytes.
const maxForeignText = 128

// withForeignFields replaces the managed fields of an object that was read by the annotation maestroapi.AnnotationForeignFields, and returns
// the object. The agent applies manifests with one field manager, so that server-side apply never changes a field that no manifest sets:
// whoever sets it by hand changes what the object means, and nothing else would report that.
func withForeignFields(object *unstructured.Unstructured) *unstructured.Unstructured {
	fields := foreignFields(object)
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	if _, set := annotations[maestroapi.AnnotationForeignFields]; len(fields) == 0 && !set {
		return object
	}
	delete(annotations, maestroapi.AnnotationForeignFields) // a client may have set it
	if len(fields) > 0 {
		if annotations == nil {
			annotations = map[string]string{}
		}
		encoded, _ := json.Marshal(fields) // strings only
		annotations[maestroapi.AnnotationForeignFields] = string(encoded)
	}
	object.SetAnnotations(annotations)
	return object
}

// foreignFields returns the fields of the spec that other managers own and the agent does not, as maestroapi.SelectForeignFields selects them.
// It returns none of an object that the agent has not applied, and of a Secret, which has no spec.
func foreignFields(object *unstructured.Unstructured) []maestroapi.ForeignField {
	entries := object.GetManagedFields()
	own := &fieldpath.Set{}
	for i := range entries {
		if entries[i].Manager == workv1.DefaultFieldManager && entries[i].Subresource == "" {
			own = own.Union(specOf(&entries[i]))
		}
	}
	if own.Empty() {
		return nil
	}
	var fields []maestroapi.ForeignField
	for i := range entries {
		if entries[i].Manager == workv1.DefaultFieldManager || entries[i].Subresource != "" {
			continue
		}
		specOf(&entries[i]).Difference(own).Leaves().Iterate(func(path fieldpath.Path) {
			fields = append(fields, maestroapi.ForeignField{Path: clip(strings.TrimPrefix(path.String(), "."), maxForeignText), Manager: clip(entries[i].Manager, maxForeignText), Value: scalar(object, path)})
		})
	}
	return maestroapi.SelectForeignFields(fields)
}

// specOf returns the fields of the spec in an entry of managed fields. An entry that cannot be read has none.
func specOf(entry *metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if entry.FieldsV1 == nil || set.FromJSON(bytes.NewReader(entry.FieldsV1.Raw)) != nil {
		return &fieldpath.Set{}
	}
	spec := &fieldpath.Set{}
	set.Iterate(func(path fieldpath.Path) {
		if len(path) > 1 && path[0].FieldName != nil && *path[0].FieldName == "spec" {
			spec.Insert(path.Copy())
		}
	})
	return spec
}

// scalar returns the text of a short scalar at a path of field names, and "" for all else.
func scalar(object *unstructured.Unstructured, path fieldpath.Path) string {
	var names []string
	for _, element := range path {
		if element.FieldName == nil {
			return ""
		}
		names = append(names, *element.FieldName)
	}
	value, found, err := unstructured.NestedFieldNoCopy(object.Object, names...)
	if !found || err != nil {
		return ""
	}
	switch value.(type) {
	case string, bool, int64, float64:
		if text := fmt.Sprint(value); len(text) <= maxForeignText {
			return text
		}
	}
	return ""
}
