package frontdoor

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/directory"
)

// Deployments of templates are validated here and not carried out. Of ARM's template language the door evaluates what a
// whole string asks for and what is known beforehand: a parameter, a variable, the location of the resource group. The
// resource provider leaves out what is still an expression.

// preflightVersion is the api-version of the resource provider contract's preflight.
const preflightVersion = "2020-06-01"

// deploymentType is ARM's.
const deploymentType = "Microsoft.Resources/deployments"

type deploymentRequest struct {
	Location   string `json:"location"`
	Properties struct {
		Mode       string                        `json:"mode"`
		Template   *template                     `json:"template"`
		Parameters map[string]deploymentArgument `json:"parameters"`
	} `json:"properties"`
}

type deploymentArgument struct {
	Value any `json:"value"`
}

type template struct {
	Parameters map[string]struct {
		DefaultValue any `json:"defaultValue"`
	} `json:"parameters"`
	Variables map[string]any `json:"variables"`
	// Resources are a list, or an object in newer templates.
	Resources json.RawMessage `json:"resources"`
}

// deployment answers below Microsoft.Resources/deployments; nil for other paths.
func (d *Door) deployment(r *request, s directory.Subscription) *answer {
	if !r.path.begins("providers", "Microsoft.Resources", "deployments") {
		return nil
	}
	if !r.path.is("providers", "Microsoft.Resources", "deployments", "", "validate") {
		return refuse(http.StatusBadRequest, "DeploymentsNotSupported", "Deployments are validated here (POST …/deployments/{name}/validate) and not carried out.")
	}
	if r.Method != http.MethodPost {
		return notAllowed(http.MethodPost)
	}
	var body deploymentRequest
	if refused := read(r, &body); refused != nil {
		return refused
	}
	if body.Properties.Template == nil {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "The request's body has no properties.template; linked templates are not read here.")
	}
	resources, err := body.Properties.Template.flatten()
	if err != nil {
		return refuse(http.StatusBadRequest, "InvalidTemplate", "Deployment template validation failed: the resources are not valid: %s.", err)
	}
	evaluation := body.evaluation(s, r.path.group)
	var ours []map[string]any
	for _, resource := range resources {
		if kind, _ := resource["type"].(string); strings.HasPrefix(strings.ToLower(kind), strings.ToLower(Provider)+"/") {
			ours = append(ours, evaluation.resource(resource))
		}
	}
	name := r.path.rest[3]
	if len(ours) > 0 {
		if refused := d.preflight(r, s, name, ours); refused != nil {
			return refused
		}
	}
	scope := "/subscriptions/" + s.ID
	if r.path.group != "" {
		scope += "/resourceGroups/" + r.path.group
	}
	return give(http.StatusOK, map[string]any{
		"id": scope + "/providers/" + deploymentType + "/" + name, "name": name, "type": deploymentType,
		"properties": map[string]any{"provisioningState": "Succeeded", "mode": body.Properties.Mode},
	})
}

// preflight asks the resource provider about resources of a deployment; nil when it would take them.
func (d *Door) preflight(r *request, s directory.Subscription, name string, resources []map[string]any) *answer {
	if refused := d.admit(r, s); refused != nil {
		return refused
	}
	path := "/subscriptions/" + s.ID
	if r.path.group != "" {
		path += "/resourceGroups/" + escape(r.path.group)
	}
	path += "/providers/" + Provider + "/deployments/" + escape(name) + "/preflight?api-version=" + preflightVersion
	content, _, err := d.ask(r.Context(), r, http.MethodPost, path, map[string]any{"resources": resources})
	if err != nil {
		return d.fail(err)
	}
	var judged struct {
		Status string          `json:"status"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(content, &judged); err != nil {
		return d.fail(err)
	}
	if judged.Status == "Succeeded" {
		return nil
	}
	refused := refuse(http.StatusBadRequest, "InvalidTemplateDeployment", "The template deployment '%s' is not valid according to the validation procedure. See inner errors for details.", name)
	refused.details = []json.RawMessage{judged.Error}
	return refused
}

// flatten lists the resources of a template, those within others under their full types and names.
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
	return within(nil, list), nil
}

func within(parent map[string]any, resources []map[string]any) []map[string]any {
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
		all = append(append(all, resource), within(resource, children)...)
	}
	return all
}

// evaluation puts what is known in the place of expressions.
type evaluation struct {
	// known are values by the expressions that ask for them.
	known map[string]any
	// left is how many values may still be made.
	left int
}

func (b *deploymentRequest) evaluation(s directory.Subscription, group string) *evaluation {
	known := map[string]any{}
	t := b.Properties.Template
	for name, parameter := range t.Parameters {
		if parameter.DefaultValue != nil {
			known["[parameters('"+name+"')]"] = parameter.DefaultValue
		}
	}
	for name, argument := range b.Properties.Parameters {
		if argument.Value != nil {
			known["[parameters('"+name+"')]"] = argument.Value
		}
	}
	for name, value := range t.Variables {
		known["[variables('"+name+"')]"] = value
	}
	if g, ok := s.Group(group); ok {
		known["[resourceGroup().location]"] = g.Location
	}
	return &evaluation{known: known, left: maxValues}
}

// The bounds of an evaluation: how often a value leads to another, since variables may be made of parameters and of
// themselves, and how many values there may be in the end.
const (
	maxSteps  = 8
	maxValues = 100_000
)

func (e *evaluation) resource(resource map[string]any) map[string]any {
	evaluated, _ := e.value(resource, maxSteps).(map[string]any)
	return evaluated
}

func (e *evaluation) value(value any, steps int) any {
	if e.left--; e.left < 0 {
		return value
	}
	switch value := value.(type) {
	case string:
		if known, ok := e.known[value]; ok && steps > 0 {
			return e.value(known, steps-1)
		}
	case map[string]any:
		evaluated := make(map[string]any, len(value))
		for name, field := range value {
			evaluated[name] = e.value(field, steps)
		}
		return evaluated
	case []any:
		evaluated := make([]any, len(value))
		for i, element := range value {
			evaluated[i] = e.value(element, steps)
		}
		return evaluated
	}
	return value
}
