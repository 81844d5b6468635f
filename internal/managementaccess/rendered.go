package managementaccess

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/api/experiment"
)

// rendered lists the fields that Cluster Service renders, and what values they may have. Its header describes the format.
//
//go:embed rendered.yaml
var rendered []byte

// The values in the list.
const (
	anyValue      = "any"
	onlyValue     = "only "
	releaseImage  = "release image"
	operatorImage = "operator image"
	listItems     = "[]"
	anyKey        = "*"
)

// fields are the permitted fields of an object. A value is the fields of an object or list below it, or a string.
type fields map[string]any

// serverSets are fields that the API server sets or keeps whatever a request contains, by resource. Those of "" are of all resources.
func serverSets(resource string) fields {
	set := fields{"metadata": fields{"creationTimestamp": anyValue, "generation": anyValue, "managedFields": anyValue, "resourceVersion": anyValue, "uid": anyValue,
		// The policy checks each owner.
		"ownerReferences": anyValue}}
	switch resource {
	case "namespaces.":
		set["metadata"].(fields)["labels"] = fields{"kubernetes.io/metadata.name": anyValue}
		set["spec"], set["status"] = fields{"finalizers": anyValue}, anyValue
	case "certificatesigningrequests.certificates.k8s.io":
		set["spec"] = fields{"username": anyValue, "uid": anyValue, "groups": anyValue, "extra": anyValue}
		set["status"] = anyValue
	}
	return set
}

// merge adds the fields of other to f.
func (f fields) merge(other fields) {
	for key, value := range other {
		if below, ok := f[key].(fields); ok {
			if added, ok := value.(fields); ok {
				below.merge(added)
				continue
			}
		}
		f[key] = value
	}
}

// maxTerms is the number of terms of an expression. The time in which the API server checks the types of an expression grows with the square of
// its length, and each variable that it evaluates takes time. It compiles the policy in 0.2 s of processor time; with all terms of a kind in one
// expression in 1.5 s, and with one term in each in 0.13 s, but then it evaluates a HostedCluster in 1.0 ms instead of 0.6 ms.
const maxTerms = 3

// variable is a variable of an admission policy.
type variable struct {
	Name       string `yaml:"name"`
	Expression string `yaml:"expression"`
}

// renderedVariables returns the variables of the agent's policy that follow from the list. The variable applied reports whether Cluster
// Service renders the resource of a request. The variable refused has the paths of the fields that the request may not set.
func renderedVariables(releaseRepositories string) ([]variable, error) {
	var resources map[string]fields
	if err := yaml.Unmarshal(rendered, &resources); err != nil {
		return nil, fmt.Errorf("rendered.yaml: %w", err)
	}
	names := slices.Sorted(maps.Keys(resources))
	variables := []variable{
		{"applied", "variables.kind in " + list(names)},
		{"releaseRepositories", quote(releaseRepositories) + ".split(',')"},
		{"operatorRepositories", list(experiment.OperatorImageRepositories())},
	}
	chosen := "[]"
	for _, resource := range names {
		permitted := resources[resource]
		permitted.merge(serverSets(resource))
		c := &compiler{}
		c.object("", permitted, nil)
		if err := errors.Join(c.wrong...); err != nil {
			return nil, fmt.Errorf("rendered.yaml: %s: %w", resource, err)
		}
		name, _, _ := strings.Cut(resource, ".")
		if terms := c.terms; len(terms) > maxTerms {
			c.terms = nil
			for part := range slices.Chunk(terms, maxTerms) {
				partName := fmt.Sprint(name, len(c.terms))
				variables = append(variables, variable{partName, strings.Join(part, " +\n")})
				c.terms = append(c.terms, "variables."+partName)
			}
		}
		variables = append(variables, variable{name, strings.Join(c.terms, " +\n")})
		chosen = "variables.kind == " + quote(resource) + " ? variables." + name + " :\n" + chosen
	}
	return append(variables, variable{"refused", chosen}), nil
}

// compiler translates permitted fields to CEL. Each term is a list of the paths that a request may not set. A field that has the value of
// the stored object is permitted, because server-side apply sends what others have set.
type compiler struct {
	terms []string
	wrong []error
}

// object adds the terms of the object at a path.
func (c *compiler) object(prefix string, permitted fields, path []string) {
	if permitted[anyKey] != nil {
		return
	}
	now, before := at("object", path, "{}"), at("variables.old", path, "{}")
	conditions := append(c.conditions(permitted, "k", now), "(k in "+before+" && "+before+"[k] == "+now+"[k])")
	c.terms = append(c.terms, now+".map(k, !("+strings.Join(conditions, " || ")+"), "+quote(prefix)+" + k)")
	for _, key := range slices.Sorted(maps.Keys(permitted)) {
		below, ok := permitted[key].(fields)
		if !ok {
			continue
		}
		next := append(slices.Clone(path), key)
		if items, isList := below[listItems]; isList {
			c.list(prefix+key, items, next)
			continue
		}
		c.object(prefix+key+".", below, next)
	}
}

// list adds the term of the list at a path, if its items are objects.
func (c *compiler) list(name string, items any, path []string) {
	if permitted, ok := items.(fields); ok {
		c.terms = append(c.terms, at("object", path, "[]")+".map(i, !("+c.item(permitted, "i", 1)+" || i in "+at("variables.old", path, "[]")+"), "+quote(name+listItems)+")")
	} else if items != anyValue {
		c.wrong = append(c.wrong, fmt.Errorf("%s: items cannot be %v", name, items))
	}
}

// item returns an expression that reports whether all fields of an object in a list are permitted. depth makes the names of variables unique.
func (c *compiler) item(permitted fields, value string, depth int) string {
	key := fmt.Sprintf("k%d", depth)
	all := []string{value + ".all(" + key + ", " + strings.Join(append(c.conditions(permitted, key, value), "false"), " || ") + ")"}
	for _, name := range slices.Sorted(maps.Keys(permitted)) {
		below, ok := permitted[name].(fields)
		if !ok {
			continue
		}
		if items, isList := below[listItems]; isList {
			if nested, ok := items.(fields); ok {
				element := fmt.Sprintf("i%d", depth)
				all = append(all, at(value, []string{name}, "[]")+".all("+element+", "+c.item(nested, element, depth+1)+")")
			}
			continue
		}
		all = append(all, c.item(below, at(value, []string{name}, "{}"), depth+1))
	}
	return "(" + strings.Join(all, " && ") + ")"
}

// conditions returns expressions of which one is true if the field with a key is permitted in an object.
func (c *compiler) conditions(permitted fields, key, object string) []string {
	var listed, conditions []string
	value := object + "[" + key + "]"
	for _, name := range slices.Sorted(maps.Keys(permitted)) {
		is := "(" + key + " == " + quote(name) + " && "
		text, _ := permitted[name].(string)
		_, isObject := permitted[name].(fields)
		switch {
		case isObject || text == anyValue:
			listed = append(listed, name)
		case text == releaseImage:
			conditions = append(conditions, is+value+".matches("+quote(imagePattern)+") && variables.releaseRepositories.exists(r, "+value+".startsWith(r + '@')))")
		case text == operatorImage:
			conditions = append(conditions, is+value+".matches("+quote(imagePattern)+") && variables.operatorRepositories.exists(r, "+value+".startsWith(r + '/')))")
		case strings.HasPrefix(text, onlyValue):
			conditions = append(conditions, is+value+" == "+strings.TrimPrefix(text, onlyValue)+")")
		default:
			c.wrong = append(c.wrong, fmt.Errorf("%s: unknown value %v", name, permitted[name]))
		}
	}
	if len(listed) > 0 {
		conditions = append([]string{key + " in " + list(listed)}, conditions...)
	}
	return conditions
}

// imagePattern matches images that are named by a digest and without a tag.
const imagePattern = `^[a-z0-9.-]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)+@sha256:[0-9a-f]{64}$`

// at returns an expression for the value at a path below another one, and empty if there is none.
func at(root string, path []string, empty string) string {
	if len(path) == 0 {
		return root
	}
	var expression strings.Builder
	expression.WriteString(root)
	for _, key := range path {
		expression.WriteString("[?" + quote(key) + "]")
	}
	return expression.String() + ".orValue(" + empty + ")"
}

// quote returns a string of CEL. The text has neither quotes nor backslashes.
func quote(text string) string { return "'" + text + "'" }

func list(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// addRendered adds the variables to the policy of Maestro's agent.
func addRendered(policy []byte, releaseRepositories string) ([]byte, error) {
	var object map[string]any
	if err := yaml.Unmarshal(policy, &object); err != nil {
		return nil, err
	}
	added, err := renderedVariables(releaseRepositories)
	if err != nil {
		return nil, err
	}
	spec := object["spec"].(map[string]any)
	existing := spec["variables"].([]any)
	for _, v := range added {
		existing = append(existing, v)
	}
	spec["variables"] = existing
	return yaml.Marshal(object)
}
