package frontdoor

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// The front door validates deployments of templates but does not execute them. Of ARM's template language it evaluates
// expressions that are a whole string with a known value: a parameter, a variable, or the location of the resource group.
// The resource provider ignores fields that are still expressions.

// preflightVersion is the api-version of preflight in the resource provider contract.
const preflightVersion = "2020-06-01"

// deploymentType is the resource type of deployments.
const deploymentType = "Microsoft.Resources/deployments"

// deploymentRequest is the body of a validation.
type deploymentRequest struct {
	Location   string `json:"location"`
	Properties struct {
		Mode       string                        `json:"mode"`
		Template   *template                     `json:"template"`
		Parameters map[string]deploymentArgument `json:"parameters"`
	} `json:"properties"`
}

// deploymentArgument is the value of a parameter.
type deploymentArgument struct {
	Value any `json:"value"`
}

// template is an ARM template.
type template struct {
	Parameters map[string]struct {
		DefaultValue any `json:"defaultValue"`
	} `json:"parameters"`
	Variables map[string]any `json:"variables"`
	// Resources is a list, or an object in newer templates.
	Resources json.RawMessage `json:"resources"`
}

// respondForDeployment responds to requests below Microsoft.Resources/deployments. It returns nil for other paths.
func (d *FrontDoor) respondForDeployment(r *request, s Subscription) *response {
	if !r.path.begins("providers", "Microsoft.Resources", "deployments") {
		return nil
	}
	if !r.path.is("providers", "Microsoft.Resources", "deployments", "", "validate") {
		return newError(http.StatusBadRequest, "DeploymentsNotSupported", "Deployments can be validated (POST …/deployments/{name}/validate) but not created.")
	}
	if r.Method != http.MethodPost {
		return methodNotAllowed(http.MethodPost)
	}
	var body deploymentRequest
	if failure := decodeBody(r, &body); failure != nil {
		return failure
	}
	if body.Properties.Template == nil {
		return newError(http.StatusBadRequest, "InvalidRequestContent", "The request's body has no properties.template. Linked templates are not supported.")
	}
	resources, err := body.Properties.Template.flatten()
	if err != nil {
		return newError(http.StatusBadRequest, "InvalidTemplate", "Deployment template validation failed: the resources are not valid: %s.", err)
	}
	evaluation := body.evaluation(s, r.path.group)
	var providerResources []map[string]any
	for _, resource := range resources {
		if kind, _ := resource["type"].(string); strings.HasPrefix(asciifold.Lower(kind), asciifold.Lower(Provider)+"/") {
			providerResources = append(providerResources, evaluation.resource(resource))
		}
	}
	name := r.path.rest[3]
	if len(providerResources) > 0 {
		if failure := d.preflight(r, s, name, providerResources); failure != nil {
			return failure
		}
	}
	scope := "/subscriptions/" + s.ID
	if r.path.group != "" {
		scope += "/resourceGroups/" + r.path.group
	}
	return newResponse(http.StatusOK, map[string]any{
		"id": scope + "/providers/" + deploymentType + "/" + name, "name": name, "type": deploymentType,
		"properties": map[string]any{"provisioningState": "Succeeded", "mode": body.Properties.Mode},
	})
}

// preflight validates resources of a deployment with the resource provider. It returns nil if the provider accepts them.
func (d *FrontDoor) preflight(r *request, s Subscription, name string, resources []map[string]any) *response {
	if failure := d.checkPreconditions(r, s); failure != nil {
		return failure
	}
	path := "/subscriptions/" + s.ID
	if r.path.group != "" {
		path += "/resourceGroups/" + escape(r.path.group)
	}
	path += "/providers/" + Provider + "/deployments/" + escape(name) + "/preflight?api-version=" + preflightVersion
	content, _, err := d.callProvider(r.Context(), r, http.MethodPost, path, map[string]any{"resources": resources})
	if err != nil {
		return d.errorResponse(err)
	}
	var verdict struct {
		Status string          `json:"status"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(content, &verdict); err != nil {
		return d.errorResponse(err)
	}
	if verdict.Status == "Succeeded" {
		return nil
	}
	failure := newError(http.StatusBadRequest, "InvalidTemplateDeployment", "The template deployment '%s' is not valid according to the validation procedure. See inner errors for details.", name)
	failure.details = []json.RawMessage{verdict.Error}
	return failure
}

// flatten returns the resources of a template. Nested resources have their full types and names.
func (t *template) flatten() ([]map[string]any, error) {
	var list []map[string]any
	if err := json.Unmarshal(t.Resources, &list); err != nil {
		var named map[string]map[string]any
		if json.Unmarshal(t.Resources, &named) != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			list = append(list, named[name])
		}
	}
	return flattenChildren(nil, list), nil
}

// flattenChildren returns resources and their nested resources, with types and names below those of parent.
func flattenChildren(parent map[string]any, resources []map[string]any) []map[string]any {
	var all []map[string]any
	for _, resource := range resources {
		if resource == nil {
			continue
		}
		if parent != nil {
			for _, field := range []string{"type", "name"} {
				outer, _ := parent[field].(string)
				inner, _ := resource[field].(string)
				if strings.HasPrefix(outer, "[") || strings.HasPrefix(inner, "[") {
					continue
				}
				resource[field] = outer + "/" + inner
			}
		}
		var children []map[string]any
		if inner, ok := resource["resources"].([]any); ok {
			for _, child := range inner {
				if object, ok := child.(map[string]any); ok {
					children = append(children, object)
				}
			}
		}
		delete(resource, "resources")
		all = append(append(all, resource), flattenChildren(resource, children)...)
	}
	return all
}

// evaluation replaces expressions by their values.
type evaluation struct {
	// values maps expressions to their values.
	values map[string]any
	// remaining is the number of values that may still be created.
	remaining int
}

// evaluation returns the evaluation of a deployment's expressions.
func (b *deploymentRequest) evaluation(s Subscription, group string) *evaluation {
	values := map[string]any{}
	t := b.Properties.Template
	for name, parameter := range t.Parameters {
		if parameter.DefaultValue != nil {
			values["[parameters('"+name+"')]"] = parameter.DefaultValue
		}
	}
	for name, argument := range b.Properties.Parameters {
		if argument.Value != nil {
			values["[parameters('"+name+"')]"] = argument.Value
		}
	}
	for name, value := range t.Variables {
		values["[variables('"+name+"')]"] = value
	}
	if g, ok := s.Group(group); ok {
		values["[resourceGroup().location]"] = g.Location
	}
	return &evaluation{values: values, remaining: maxValues}
}

// The limits of an evaluation. maxDepth bounds the chain of expressions, because variables may refer to parameters and to
// themselves. maxValues bounds the size of the result.
const (
	maxDepth  = 8
	maxValues = 100_000
)

// resource returns a copy of resource with evaluated expressions.
func (e *evaluation) resource(resource map[string]any) map[string]any {
	evaluated, _ := e.value(resource, maxDepth).(map[string]any)
	return evaluated
}

// value returns a copy of value with evaluated expressions. depth is the remaining length of a chain of expressions.
func (e *evaluation) value(value any, depth int) any {
	if e.remaining--; e.remaining < 0 {
		return value
	}
	switch value := value.(type) {
	case string:
		if result, ok := e.values[value]; ok && depth > 0 {
			return e.value(result, depth-1)
		}
	case map[string]any:
		evaluated := make(map[string]any, len(value))
		for name, field := range value {
			evaluated[name] = e.value(field, depth)
		}
		return evaluated
	case []any:
		evaluated := make([]any, len(value))
		for i, element := range value {
			evaluated[i] = e.value(element, depth)
		}
		return evaluated
	}
	return value
}
