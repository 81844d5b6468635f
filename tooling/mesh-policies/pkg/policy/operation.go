package policy

import (
	"fmt"
	"net/http"
	"strings"

	securityapi "istio.io/api/security/v1beta1"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// operationOf returns the operation of a rule. rules are all rules of the server.
func operationOf(rule mesh.Rule, rules []mesh.Rule) (*securityapi.Operation, error) {
	switch rule.Protocol {
	case mesh.GRPC:
		return &securityapi.Operation{Methods: []string{http.MethodPost}, Paths: []string{rule.Method}}, nil
	case mesh.HTTP:
		if other, ok := moreSpecific(rule, rules); ok {
			return nil, fmt.Errorf("the pattern %q contains the paths of %q: Istio adds up the clients of both, the server does not", rule.Method, other)
		}
		return pathRule(rule.Method)
	}
	return nil, fmt.Errorf("the %s rule %q has no form in Istio", rule.Protocol, rule.Method)
}

// moreSpecific returns the pattern of another rule for paths that the rule's pattern matches, too. http.ServeMux uses the more
// specific pattern of the two only, and Istio allows a call that any of its rules allows.
func moreSpecific(rule mesh.Rule, rules []mesh.Rule) (string, bool) {
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
			return other.Method, true
		}
	}
	return "", false
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
