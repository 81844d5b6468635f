package istiopolicy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	securityapi "istio.io/api/security/v1beta1"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// operationOf returns the operation of a rule.
func operationOf(rule mesh.Rule) (*securityapi.Operation, error) {
	switch rule.Protocol {
	case mesh.GRPC:
		return &securityapi.Operation{Methods: []string{http.MethodPost}, Paths: []string{rule.Method}}, nil
	case mesh.HTTP:
		return pathRule(rule.Method)
	}
	return nil, fmt.Errorf("the %s rule %q has no form in Istio", rule.Protocol, rule.Method)
}

// contained returns the rules for paths that the pattern of a rule matches, too. http.ServeMux uses the more specific pattern of the
// two only, and Istio allows a call that any of its rules allows.
func contained(rule mesh.Rule, rules []mesh.Rule) []mesh.Rule {
	if rule.Protocol != mesh.HTTP {
		return nil
	}
	var found []mesh.Rule
	mux := http.NewServeMux()
	mux.Handle(rule.Method, http.NotFoundHandler())
	for _, other := range rules {
		if other.Protocol != mesh.HTTP || other.Method == rule.Method {
			continue
		}
		method, path := splitPattern(other.Method)
		if method == "" {
			method = http.MethodGet
		}
		request, err := http.NewRequest(method, strings.NewReplacer("{", "", "}", "", "...", "").Replace(path), nil)
		if err != nil {
			continue // not a path: pathRule refuses it
		}
		if _, pattern := mux.Handler(request); pattern != "" {
			found = append(found, other)
		}
	}
	return found
}

// redundant returns the methods of rules whose paths and principals another rule contains, so that Istio needs no rule for them. It
// returns an error for a rule whose clients Istio would allow to use a path that the server refuses to them.
func redundant(rules []mesh.Rule, options Options) (map[string]bool, error) {
	methods := map[string]bool{}
	for _, rule := range rules {
		principals := principalsOf(rule, options)
		for _, other := range contained(rule, rules) {
			allowed := principalsOf(other, options)
			if excludes(rule, other, options) {
				continue
			}
			if slices.ContainsFunc(principals, func(p string) bool { return !slices.Contains(allowed, p) }) {
				return nil, fmt.Errorf("the pattern %q contains the paths of %q: Istio adds up the clients of both, the server does not", rule.Method, other.Method)
			}
			if slices.Equal(principals, allowed) {
				methods[other.Method] = true
			}
		}
	}
	return methods, nil
}

// excludes reports whether the operation of a rule omits the paths of another one, which has other clients. The rule for every path and method can
// omit those of a rule for every method.
func excludes(rule, other mesh.Rule, options Options) bool {
	method, _ := splitPattern(other.Method)
	return rule.Method == mesh.Unrouted && method == "" && !slices.Equal(principalsOf(rule, options), principalsOf(other, options))
}

// excluded returns the paths that the operation of a rule omits.
func excluded(rule mesh.Rule, rules []mesh.Rule, options Options) []string {
	var paths []string
	for _, other := range contained(rule, rules) {
		if !excludes(rule, other, options) {
			continue
		}
		if operation, err := pathRule(other.Method); err == nil { // else the rule of the path itself is refused
			paths = append(paths, operation.Paths...)
		}
	}
	return paths
}

// pathRule returns the operation of a pattern of http.ServeMux. Supported are an optional method, literal segments, {name} for
// one segment, and / for every path. It returns an error for other patterns.
func pathRule(pattern string) (*securityapi.Operation, error) {
	method, path := splitPattern(pattern)
	operation := &securityapi.Operation{}
	switch method {
	case "":
	case http.MethodGet:
		operation.Methods = []string{http.MethodGet, http.MethodHead} // as http.ServeMux
	default:
		operation.Methods = []string{method}
	}
	if path == "/" {
		return operation, nil
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return nil, fmt.Errorf("the pattern %q has neither the form /a/{b} nor the form /", pattern)
	}
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}") && !strings.HasSuffix(segment, "...}") && segment != "{$}" {
			segments[i] = "{*}"
		} else if strings.ContainsAny(segment, "{}*") {
			return nil, fmt.Errorf("the pattern %q has an unsupported segment %q", pattern, segment)
		}
	}
	operation.Paths = []string{"/" + strings.Join(segments, "/")}
	return operation, nil
}

// splitPattern returns the method and the path of a pattern. The method is empty if the pattern has none.
func splitPattern(pattern string) (method, path string) {
	if method, path, ok := strings.Cut(pattern, " "); ok {
		return method, path
	}
	return "", pattern
}
