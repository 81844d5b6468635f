package validation

import (
	"slices"
	"strconv"
	"strings"
)

// IsExpression reports whether a string of an ARM template is an expression: a string in brackets. A string that starts with two brackets is a
// literal that starts with one (ARM's escape).
func IsExpression(text string) bool {
	return len(text) >= 2 && text[0] == '[' && text[1] != '[' && text[len(text)-1] == ']'
}

// Literal returns the value of a literal string in a template.
func Literal(text string) string {
	if strings.HasPrefix(text, "[[") && strings.HasSuffix(text, "]") {
		return text[1:]
	}
	return text
}

// Unknown lists the paths of unknown values, for example properties.network.podCidr.
type Unknown []string

// Covers reports whether a field is unknown, is part of an unknown value, or contains one.
func (u Unknown) Covers(field string) bool {
	return slices.ContainsFunc(u, func(path string) bool { return within(path, field) || within(field, path) })
}

func within(outer, field string) bool {
	rest, ok := strings.CutPrefix(field, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// ResolveExpressions removes the expressions from an object of a template and returns their paths, so that a preflight, which receives resources before
// ARM has evaluated their expressions, can ignore unknown values. It modifies object and evaluates nothing. A field
// whose name is an expression is removed and makes its object unknown. An element that is an expression makes its whole
// array unknown, because the indices of the others are not known. Escaped literals are replaced by their values.
func ResolveExpressions(object map[string]any) Unknown {
	var unknown Unknown
	resolveObject(object, "", &unknown)
	slices.Sort(unknown)
	return unknown
}

func resolveObject(object map[string]any, path string, unknown *Unknown) {
	for name, value := range object {
		if IsExpression(name) {
			delete(object, name)
			*unknown = append(*unknown, path)
			continue
		}
		field := name
		if path != "" {
			field = path + "." + name
		}
		if mapOfNames(path) {
			field = path + "[" + name + "]"
		}
		resolved, known := resolve(value, field, unknown)
		if !known {
			delete(object, name)
			*unknown = append(*unknown, field)
			continue
		}
		object[name] = resolved
	}
}

// mapOfNames reports whether the keys of an object are names that the customer chooses. Paths have such keys in
// brackets.
func mapOfNames(path string) bool {
	return path == "tags" || path == "identity.userAssignedIdentities" ||
		strings.HasSuffix(path, ".controlPlaneOperators") || strings.HasSuffix(path, ".dataPlaneOperators")
}

// resolve returns a value without expressions. known is false if the whole value is unknown.
func resolve(value any, path string, unknown *Unknown) (resolved any, known bool) {
	switch value := value.(type) {
	case string:
		return Literal(value), !IsExpression(value)
	case map[string]any:
		resolveObject(value, path, unknown)
	case []any:
		for i, element := range value {
			resolved, known := resolve(element, path+"["+strconv.Itoa(i)+"]", unknown)
			if !known {
				return nil, false
			}
			value[i] = resolved
		}
	}
	return value, true
}
