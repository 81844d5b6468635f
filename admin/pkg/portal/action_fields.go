package portal

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// text returns the value of a field without the spaces around it.
func text(form url.Values, name string) string { return strings.TrimSpace(form.Get(name)) }

// fieldValue returns the value of a field that an action declares. admin checks a text that has a first value.
func fieldValue(f field, form url.Values) (any, error) {
	switch f.Kind {
	case adminv1.FieldNumber:
		return requiredNumber(form, f.Name, f.Min, f.Max)
	case adminv1.FieldSelect:
		return form.Get(f.Name), nil
	case adminv1.FieldCheck:
		return checked(form, f.Name), nil
	case adminv1.FieldLabels:
		return labels(form, f.Name)
	case adminv1.FieldList, adminv1.FieldArea:
		list := append([]string{}, names(form, f.Name)...)
		if f.Max > 0 && (len(list) < int(f.Min) || len(list) > int(f.Max)) {
			return nil, &fieldError{f.Name, fmt.Sprintf("Enter %d to %d %s.", f.Min, f.Max, f.Name)}
		}
		return list, nil
	}
	if f.Optional || f.Value != "" {
		return text(form, f.Name), nil
	}
	return required(form, f.Name)
}

// required returns the value of a field, which must not be empty.
func required(form url.Values, name string) (string, error) {
	value := text(form, name)
	if value == "" {
		return "", &fieldError{name, "Required value."}
	}
	return value, nil
}

// number returns the value of a field; nil if it is empty.
func number(form url.Values, name string, least, most int32) (*int32, error) {
	value := text(form, name)
	if value == "" {
		return nil, nil
	}
	parsed, err := strconv.ParseInt(value, 10, 32)
	if err != nil || int32(parsed) < least || int32(parsed) > most {
		return nil, &fieldError{name, fmt.Sprintf("Must be a number from %d to %d.", least, most)}
	}
	result := int32(parsed)
	return &result, nil
}

// requiredNumber returns the value of a field, which must not be empty.
func requiredNumber(form url.Values, name string, least, most int32) (int32, error) {
	value, err := number(form, name, least, most)
	if err == nil && value == nil {
		err = &fieldError{name, "Required value."}
	}
	if err != nil {
		return 0, err
	}
	return *value, nil
}

// names returns the values of a field that has several, separated by commas or spaces.
func names(form url.Values, name string) []string {
	return strings.FieldsFunc(form.Get(name), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' || r == '\r' })
}

// labels returns the labels of a field: name=value, separated by commas or spaces.
func labels(form url.Values, name string) (map[string]string, error) {
	list := map[string]string{}
	for _, entry := range names(form, name) {
		key, value, found := strings.Cut(entry, "=")
		if !found || key == "" {
			return nil, &fieldError{name, fmt.Sprintf("%q is not name=value.", entry)}
		}
		list[key] = value
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}

// timestamp returns the time of a field; nil if it is empty.
func timestamp(form url.Values, name string) (*timestamppb.Timestamp, error) {
	value := text(form, name)
	if value == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return nil, &fieldError{name, "Must be a time such as 2026-11-24T22:00:00Z."}
	}
	return timestamppb.New(at), nil
}

// checkedOption is the value of a checkbox that is checked.
const checkedOption = "true"

// checked reports whether a checkbox is checked.
func checked(form url.Values, name string) bool { return form.Get(name) == checkedOption }
