package shape

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// fromStatus computes a field from a resource's reported status and the key of the enclosing entry of a map.
type fromStatus struct {
	status  reflect.Type
	compute func(status any, key string) any
}

// FromStatus returns a value that is computed from the resource's reported status. It is written unless it is nil or the
// empty string, and never read.
func FromStatus[S any](name string, value func(status *S) any) Field {
	return Field{name: name, kind: reported, fromStatus: &fromStatus{
		status:  reflect.TypeFor[*S](),
		compute: func(status any, _ string) any { return value(status.(*S)) },
	}}
}

// ShownFromStatus returns f, a Value of an entry of a Map, with another value in responses. It is computed from the
// resource's reported status and the key of the entry, and omitted if it is nil or the empty string.
func ShownFromStatus[S any](f Field, value func(status *S, key string) any) Field {
	f.shown = &fromStatus{
		status:  reflect.TypeFor[*S](),
		compute: func(status any, key string) any { return value(status.(*S), key) },
	}
	return f
}

// report holds the reported values of a resource.
type report struct {
	state  hub.ProvisioningState
	status any
	// key is the key of the enclosing entry of a map.
	key string
}

// encodedResource is a resource that json.Marshal can write.
type encodedResource struct {
	root     *node
	resource reflect.Value
	report   report
}

// MarshalJSON implements json.Marshaler.
func (e encodedResource) MarshalJSON() ([]byte, error) {
	return e.root.appendObject(make([]byte, 0, 6<<10), e.resource, &e.report)
}

func (n *node) appendObject(b []byte, v reflect.Value, r *report) ([]byte, error) {
	b = append(b, '{')
	for _, field := range n.fields {
		mark := len(b)
		if b[mark-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, field.label...)
		start := len(b)
		var err error
		if b, err = field.append(b, v, r); err != nil {
			return nil, err
		}
		if len(b) == start {
			b = b[:mark]
		}
	}
	return append(b, '}'), nil
}

// append appends the field's value, or nothing if the field is omitted.
func (n *node) append(b []byte, v reflect.Value, r *report) ([]byte, error) {
	switch n.kind {
	case implied:
		return b, nil
	case value:
		switch {
		case n.notShown:
			return b, nil
		case n.shown != nil:
			return appendAny(b, n.shown.compute(r.status, r.key))
		}
	case state:
		return appendText(b, string(r.state)), nil
	case reported:
		return appendAny(b, n.fromStatus.compute(r.status, r.key))
	}
	v = n.in(v)
	switch n.kind {
	case readOnly:
		if v.IsZero() {
			return b, nil
		}
		return appendAny(b, v.Interface())
	case object:
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return b, nil
			}
			v = v.Elem()
		}
		start := len(b)
		b, err := n.appendObject(b, v, r)
		if len(b) == start+len("{}") && !n.writeZero {
			b = b[:start]
		}
		return b, err
	case list:
		return n.appendList(b, v, r)
	case mapping:
		return n.appendMap(b, v, r)
	}
	return n.appendValue(b, v)
}

func (n *node) appendList(b []byte, v reflect.Value, r *report) (_ []byte, err error) {
	if v.Len() == 0 {
		return b, nil
	}
	for i := range v.Len() {
		b = append(b, "[,"[min(i, 1)])
		if b, err = n.appendObject(b, v.Index(i), r); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func (n *node) appendMap(b []byte, v reflect.Value, r *report) (_ []byte, err error) {
	if v.Len() == 0 {
		return b, nil
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for i, key := range keys {
		b = append(b, "{,"[min(i, 1)])
		b = append(appendQuoted(b, key.String()), ':')
		entry := report{state: r.state, status: r.status, key: key.String()}
		if b, err = n.appendObject(b, v.MapIndex(key), &entry); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func (n *node) appendValue(b []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.String:
		text := v.String()
		if n.enum != nil && !slices.Contains(n.enum, text) {
			return b, nil
		}
		if n.writeZero {
			return appendQuoted(b, text), nil
		}
		return appendText(b, text), nil
	case reflect.Pointer:
		if v.IsNil() {
			return b, nil
		}
		return strconv.AppendInt(b, v.Elem().Int(), 10), nil
	case reflect.Slice, reflect.Map:
		switch {
		case v.Len() > 0:
			return appendAny(b, v.Interface())
		case n.writeZero && v.Kind() == reflect.Map:
			return append(b, "{}"...), nil
		case n.writeZero:
			return append(b, "[]"...), nil
		}
		return b, nil
	}
	// A zero is omitted only if an absent field is decoded to zero.
	if v.IsZero() && !n.writeZero && !(n.defaultValue.IsValid() && !n.defaultValue.IsZero()) {
		return b, nil
	}
	if v.Kind() == reflect.Bool {
		return strconv.AppendBool(b, v.Bool()), nil
	}
	return strconv.AppendInt(b, v.Int(), 10), nil
}
