// Package template knows as much of ARM's template language as a resource provider needs to judge a deployment before it
// is sent: which values of a resource are expressions that nobody has evaluated yet. They are taken out, and what was
// taken out is remembered by its path, so that nothing is said about what cannot be known.
//
// An expression is a string in brackets; one that begins with two is a literal that begins with one (ARM's escape). The
// package evaluates nothing.
package template

import (
	"slices"
	"strconv"
	"strings"
)

// IsExpression reports whether a string of a template is an expression.
func IsExpression(text string) bool {
	return len(text) >= 2 && text[0] == '[' && text[1] != '[' && text[len(text)-1] == ']'
}

// Literal is the string that a literal of a template stands for.
func Literal(text string) string {
	if strings.HasPrefix(text, "[[") && strings.HasSuffix(text, "]") {
		return text[1:]
	}
	return text
}

// Unknown are the paths of values that cannot be known, as in properties.network.podCidr.
type Unknown []string

// Covers reports whether a field is unknown, is within what is unknown, or holds something unknown.
func (u Unknown) Covers(field string) bool {
	return slices.ContainsFunc(u, func(path string) bool { return within(path, field) || within(field, path) })
}

func within(outer, field string) bool {
	rest, ok := strings.CutPrefix(field, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Resolve takes the expressions out of an object of a template, which it changes, and says where they were. A field
// whose name is an expression goes as a whole, and leaves the object that it was in unknown; so does an array with an
// element that is one, since the places of the others are not known. Literals become what they stand for.
func Resolve(object map[string]any) Unknown {
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

// mapOfNames reports whether the fields of an object are names that the customer chose, which paths have in brackets.
func mapOfNames(path string) bool {
	return path == "tags" || path == "identity.userAssignedIdentities" ||
		strings.HasSuffix(path, ".controlPlaneOperators") || strings.HasSuffix(path, ".dataPlaneOperators")
}

// resolve returns a value without expressions; known is false when nothing is left of it.
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
